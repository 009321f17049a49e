#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "aws/credentials_source.h"
#include "aws/process.h"
#include "aws/text/argv_split.h"
#include "base/buf.h"
#include "base/error.h"

enum { TIMEOUT_MS = 60000, MAX_OUTPUT = 64 << 10, MAX_ERRORS = 4096, MAX_SHOWN = 200, SECRET_LIKE = 20 };

/*
 * The first line that a command wrote to standard error. Long runs of letters and digits are
 * masked: a command may print a key.
 */
static void first_line(const struct buf *errors, char out[MAX_SHOWN + 1])
{
    const char *text = errors->data == NULL ? "" : errors->data;
    size_t len = strcspn(text, "\r\n");
    size_t run = 0;

    if (len > MAX_SHOWN) {
        len = MAX_SHOWN;
    }
    memcpy(out, text, len);
    out[len] = '\0';
    for (size_t i = 0; i <= len; i++) {
        if (i < len && (isalnum((unsigned char)out[i]) || strchr("+/=_", out[i]) != NULL)) {
            run++;
            continue;
        }
        if (run >= SECRET_LIKE) {
            memset(out + i - run, '*', run);
        }
        run = 0;
        if (i < len && iscntrl((unsigned char)out[i])) {
            out[i] = ' ';
        }
    }
}

static enum belay_code check_output_version(const struct buf *out, const char *profile,
                                            struct belay_error *err)
{
    json_t *root = json_loadb(out->data == NULL ? "" : out->data, out->len, 0, NULL);
    const json_t *version = json_object_get(root, "Version");
    bool fits = json_is_integer(version) && json_integer_value(version) == 1;

    json_decref(root);
    return fits
               ? BELAY_OK
               : error_set(err, BELAY_BAD_CONTENT,
                           "credential_process of profile '%s' must print JSON with \"Version\": 1", profile);
}

static enum belay_code use_output(const struct platform *platform, const struct buf *out, const char *profile,
                                  struct credentials *made, struct belay_error *err)
{
    enum belay_code code = check_output_version(out, profile, err);

    if (code == BELAY_OK) {
        code = credentials_from_json(out->data, out->len, "SessionToken", "credential_process", made, err);
    }
    if (code == BELAY_OK && made->expires_unix_ms != 0 &&
        made->expires_unix_ms <= platform_unix_ms(platform)) {
        code = error_set(
            err, BELAY_NOT_PERMITTED,
            "credential_process of profile '%s' printed credentials that have expired: log in again",
            profile);
    }
    return code;
}

enum belay_code credentials_from_process(const struct platform *platform, const char *command,
                                         const char *profile, struct credentials *out,
                                         struct belay_error *err)
{
    struct buf text = BUF_INIT(MAX_OUTPUT);
    struct buf errors = BUF_INIT(MAX_ERRORS);
    struct credentials made = { 0 };
    char **words = NULL;
    enum belay_code code;
    int status = 0;

    if (!argv_split(command, &words)) {
        code = error_set(err, BELAY_CONFIG, "credential_process of profile '%s' has an open quote", profile);
        goto done;
    }
    code = process_run(words, TIMEOUT_MS, &text, &errors, &status, err);
    if (code != BELAY_OK) {
        (void)error_wrap(err, "credential_process of profile '%s'", profile);
    }
    if (code == BELAY_OK && status != 0) {
        char shown[MAX_SHOWN + 1];

        first_line(&errors, shown);
        code = error_set(err, BELAY_NOT_PERMITTED,
                         "credential_process of profile '%s' failed with status %d%s%s", profile, status,
                         *shown == '\0' ? "" : ": ", shown);
    }
    if (code == BELAY_OK) {
        code = use_output(platform, &text, profile, &made, err);
    }
    if (code == BELAY_OK) {
        code = credentials_set_source(&made, err, "credential_process of profile '%s'", profile);
    }

done:
    wipe_buf(&text);
    buf_release(&errors);
    argv_free(words);
    return credentials_finish(code, &made, out);
}
