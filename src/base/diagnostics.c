#include "base/diagnostics.h"

#include <stdarg.h>
#include <stdio.h>

const char *belay_finding_level_name(enum belay_finding_level level)
{
    switch (level) {
    case BELAY_FINDING_OK:
        return "ok";
    case BELAY_FINDING_WARNING:
        return "warning";
    case BELAY_FINDING_FAILED:
        break;
    }
    return "failed";
}

static void count_and_report(struct diagnostics *diagnostics, const struct belay_finding *finding)
{
    diagnostics->n++;
    if (diagnostics->fn != NULL) {
        diagnostics->fn(diagnostics->context, finding);
    }
}

enum { TEXT_MAX = 1024 };

void diagnostics_ok(struct diagnostics *diagnostics, const char *name, const char *format, ...)
{
    char text[TEXT_MAX];
    struct belay_finding finding = { BELAY_FINDING_OK, BELAY_OK, name, text, NULL };
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    count_and_report(diagnostics, &finding);
}

void diagnostics_warn(struct diagnostics *diagnostics, const char *name, const char *advice,
                      const char *format, ...)
{
    char text[TEXT_MAX];
    struct belay_finding finding = { BELAY_FINDING_WARNING, BELAY_OK, name, text, advice };
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    diagnostics->n_warnings++;
    count_and_report(diagnostics, &finding);
}

static enum belay_code to_store_code(enum belay_code code)
{
    switch (code) {
    case BELAY_NOT_PERMITTED:
    case BELAY_UNREACHABLE:
        return code;
    case BELAY_UNKNOWN:
        return BELAY_UNREACHABLE;
    default:
        return BELAY_CONFIG;
    }
}

/* An unreachable store may recover by itself, so it counts least. */
static int severity(enum belay_code code)
{
    return code == BELAY_CONFIG ? 3 : code == BELAY_NOT_PERMITTED ? 2 : code == BELAY_UNREACHABLE ? 1 : 0;
}

static void add_failure(struct diagnostics *diagnostics, const struct belay_finding *finding)
{
    diagnostics->n_failed++;
    if (severity(finding->code) > severity(diagnostics->worst)) {
        diagnostics->worst = finding->code;
    }
    count_and_report(diagnostics, finding);
}

void diagnostics_fail(struct diagnostics *diagnostics, enum belay_code code, const char *name,
                      const char *advice, const char *format, ...)
{
    char text[TEXT_MAX];
    struct belay_finding finding = { BELAY_FINDING_FAILED, to_store_code(code), name, text, advice };
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    add_failure(diagnostics, &finding);
}

void diagnostics_error(struct diagnostics *diagnostics, const char *name, const char *advice,
                       const struct belay_error *err)
{
    struct belay_finding finding = { BELAY_FINDING_FAILED, to_store_code(err->code), name, err->text,
                                     advice };

    add_failure(diagnostics, &finding);
}
