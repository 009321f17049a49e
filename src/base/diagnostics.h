/* The findings of `belay doctor`: reported one by one, and counted. */
#ifndef BASE_DIAGNOSTICS_H
#define BASE_DIAGNOSTICS_H

#include "belay.h"

struct diagnostics {
    belay_finding_fn fn; /* NULL: count only */
    void *context;
    size_t n;
    size_t n_warnings;
    size_t n_failed;
    enum belay_code worst; /* BELAY_OK while nothing failed */
};

void diagnostics_ok(struct diagnostics *diagnostics, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* `advice` may be NULL. */
void diagnostics_warn(struct diagnostics *diagnostics, const char *name, const char *advice,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));

/* `code` is mapped to BELAY_CONFIG, BELAY_NOT_PERMITTED or BELAY_UNREACHABLE. */
void diagnostics_fail(struct diagnostics *diagnostics, enum belay_code code, const char *name,
                      const char *advice, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The same with the text of an error; `advice` may be NULL. */
void diagnostics_error(struct diagnostics *diagnostics, const char *name, const char *advice,
                       const struct belay_error *err);

#endif
