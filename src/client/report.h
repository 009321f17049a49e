/* The reports of a backend to the client's callbacks: events and waits. */
#ifndef CLIENT_REPORT_H
#define CLIENT_REPORT_H

#include "client/backend.h"

typedef void (*report_event_fn)(void *context, const struct belay_event *event);

/* The events of a commit. took_ms: of the whole operation so far; -1: not known. */
void report_commit(report_event_fn on_event, void *context, const struct belay_batch *batch,
                   const struct belay_commit *result, int64_t took_ms, int64_t commit_us);

/*
 * The event of an operation that another process carried out, or whose answer was lost:
 * it is made from the result. `result` counts if the operation succeeded, else `err`.
 */
void report_outcome(report_event_fn on_event, void *context, const struct op_request *request,
                    enum belay_code code, const struct op_result *result, const struct belay_error *err);

/* The state of a wait that on_waiting was last called with: it is called for changes only. All zero at first. */
struct wait_told {
    bool anything;
    size_t position;
    int attempt;
    bool is_frozen;
    char holder[BELAY_ID_MAX + 1];
};
/* A wait with an unknown holder is not reported, unless the key is frozen. */
void report_waiting(const struct wait_hooks *hooks, struct wait_told *told,
                    const struct belay_wait_info *waiting);

#endif
