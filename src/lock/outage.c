#include "lock/outage.h"

#include <assert.h>

enum { REMIND_MS = 10000 };

bool outage_note(struct outage *outage, enum belay_code code, int64_t now_ms)
{
    /* No answer: whether the request was sent makes no difference here, and may change with each attempt. */
    enum belay_code kind = code == BELAY_UNKNOWN ? BELAY_UNREACHABLE : code;

    assert(code != BELAY_OK);
    if (outage->is_on && kind == outage->code && now_ms - outage->told_ms < REMIND_MS) {
        return false;
    }
    outage->since_ms = outage->is_on ? outage->since_ms : now_ms;
    outage->is_on = true;
    outage->code = kind;
    outage->told_ms = now_ms;
    return true;
}

bool outage_end(struct outage *outage, int64_t now_ms, int64_t *out_lasted_ms)
{
    if (!outage->is_on) {
        return false;
    }
    *out_lasted_ms = now_ms - outage->since_ms;
    *outage = (struct outage){ 0 };
    return true;
}
