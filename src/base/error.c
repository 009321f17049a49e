#include "base/error.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum belay_code error_set(struct belay_error *err, enum belay_code code, const char *format, ...)
{
    va_list args;

    assert(code != BELAY_OK);
    if (err == NULL) {
        return code;
    }
    belay_error_release(err);
    err->code = code;
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return code;
}

enum belay_code error_wrap(struct belay_error *err, const char *format, ...)
{
    char context[sizeof err->text / 2];
    size_t n;
    va_list args;

    if (err == NULL) {
        return BELAY_BUG;
    }
    va_start(args, format);
    (void)vsnprintf(context, sizeof context, format, args);
    va_end(args);
    assert(err->code != BELAY_OK);
    n = strlen(context);
    /* A text that is too long loses its end, not its context. */
    memmove(err->text + n + 2, err->text, sizeof err->text - n - 2);
    err->text[sizeof err->text - 1] = '\0';
    memcpy(err->text, context, n);
    memcpy(err->text + n, ": ", 2);
    return err->code;
}

enum belay_code error_in_setting(struct belay_error *err, enum belay_code code, const char *setting)
{
    assert(code != BELAY_OK);
    code = code == BELAY_INVALID ? BELAY_CONFIG : code;
    if (err != NULL) {
        (void)error_wrap(err, "%s", setting);
        err->code = code;
    }
    return code;
}

void error_set_holder(struct belay_error *err, struct belay_info *holder)
{
    if (err == NULL) {
        belay_info_free(holder);
        return;
    }
    belay_info_free(err->holder);
    err->holder = holder;
}

enum belay_code error_no_memory(struct belay_error *err)
{
    return error_set(err, BELAY_NO_MEMORY, "out of memory");
}

enum belay_code error_move(struct belay_error *err, enum belay_code code, struct belay_error *from)
{
    assert(code != BELAY_OK);
    if (err != NULL) {
        belay_error_release(err);
        *err = *from;
        err->code = code;
        from->holder = NULL; /* err's now */
    }
    belay_error_release(from);
    return code;
}

void belay_error_release(struct belay_error *err)
{
    if (err == NULL) {
        return;
    }
    belay_info_free(err->holder);
    err->holder = NULL;
    err->code = BELAY_OK;
    err->text[0] = '\0';
}

const struct belay_info *belay_error_holder(const struct belay_error *err)
{
    return err == NULL ? NULL : err->holder;
}

const char *belay_code_name(enum belay_code code)
{
    switch (code) {
    case BELAY_OK:
        return "ok";
    case BELAY_HELD:
        return "lock_held";
    case BELAY_LOST:
        return "lease_lost";
    case BELAY_NOT_HOLDER:
        return "not_holder";
    case BELAY_ID_USED:
        return "id_used";
    case BELAY_NOT_FOUND:
        return "not_found";
    case BELAY_NOT_PERMITTED:
        return "not_permitted";
    case BELAY_INVALID:
        return "invalid";
    case BELAY_BAD_CONTENT:
        return "bad_content";
    case BELAY_CONFIG:
        return "bad_config";
    case BELAY_UNREACHABLE:
        return "unreachable";
    case BELAY_UNKNOWN:
        return "unknown_outcome";
    case BELAY_CANCELLED:
        return "cancelled";
    case BELAY_BUSY:
        return "busy";
    case BELAY_NO_MEMORY:
        return "no_memory";
    case BELAY_BUG:
        return "bug";
    case BELAY_REDIRECTED:
        return "redirected";
    case BELAY_REFUSED:
        return "refused";
    case BELAY_FROZEN:
        return "frozen";
    }
    return "bug";
}
