/* Errors: one call sets code and text; callers prepend their context. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "belay.h"

/* Returns `code`, for use in a return statement. */
enum belay_code error_set(struct belay_error *err, enum belay_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Prepends "CONTEXT: ". Returns err's code, or BELAY_BUG without an err. */
enum belay_code error_wrap(struct belay_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The value of a setting is wrong that was not typed: prepends "SETTING: ", and BELAY_INVALID becomes BELAY_CONFIG. */
enum belay_code error_in_setting(struct belay_error *err, enum belay_code code, const char *setting);

/* Sets the holder that is in the way. Takes over `holder`, which may be NULL. */
void error_set_holder(struct belay_error *err, struct belay_info *holder);

enum belay_code error_no_memory(struct belay_error *err);

/* Report what `from` says as `code`, which is returned. Leaves `from` empty. */
enum belay_code error_move(struct belay_error *err, enum belay_code code, struct belay_error *from);

#endif
