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

static void tell(struct findings *findings, const struct belay_finding *finding)
{
    findings->n++;
    if (findings->fn != NULL) {
        findings->fn(findings->context, finding);
    }
}

enum { TEXT_MAX = 1024 };

void finding_ok(struct findings *findings, const char *name, const char *format, ...)
{
    char text[TEXT_MAX];
    struct belay_finding finding = { BELAY_FINDING_OK, BELAY_OK, name, text, NULL };
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tell(findings, &finding);
}

void finding_warn(struct findings *findings, const char *name, const char *advice, const char *format, ...)
{
    char text[TEXT_MAX];
    struct belay_finding finding = { BELAY_FINDING_WARNING, BELAY_OK, name, text, advice };
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    findings->n_warnings++;
    tell(findings, &finding);
}

static enum belay_code nearest(enum belay_code code)
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

/* What heals by itself is least bad. */
static int weight(enum belay_code code)
{
    return code == BELAY_CONFIG ? 3 : code == BELAY_NOT_PERMITTED ? 2 : code == BELAY_UNREACHABLE ? 1 : 0;
}

static void fail(struct findings *findings, const struct belay_finding *finding)
{
    findings->n_failed++;
    if (weight(finding->code) > weight(findings->worst)) {
        findings->worst = finding->code;
    }
    tell(findings, finding);
}

void finding_failed(struct findings *findings, enum belay_code code, const char *name, const char *advice,
                    const char *format, ...)
{
    char text[TEXT_MAX];
    struct belay_finding finding = { BELAY_FINDING_FAILED, nearest(code), name, text, advice };
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fail(findings, &finding);
}

void finding_error(struct findings *findings, const char *name, const char *advice,
                   const struct belay_error *err)
{
    struct belay_finding finding = { BELAY_FINDING_FAILED, nearest(err->code), name, err->text, advice };

    fail(findings, &finding);
}
