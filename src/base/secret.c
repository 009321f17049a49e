#include "base/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"

enum { TOKEN_MAX = 4096 };

static enum belay_code check_secret_file(int fd, const char *path, struct belay_error *err)
{
    struct stat about;

    if (fd < 0 || fstat(fd, &about) != 0) {
        return error_set(err, BELAY_CONFIG, "%.200s cannot be read: %s", path, strerror(errno));
    }
    if (!S_ISREG(about.st_mode)) {
        return error_set(err, BELAY_CONFIG, "%.200s is not a file", path);
    }
    if ((about.st_mode & (S_IRWXO | S_IWGRP)) != 0) {
        return error_set(err, BELAY_CONFIG, "%.200s holds a secret and others may use it: chmod 600 it",
                         path);
    }
    return BELAY_OK;
}

enum belay_code secret_read(const char *path, char *out, size_t size, struct belay_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum belay_code code = check_secret_file(fd, path, err);
    ssize_t n = 0;

    if (code == BELAY_OK) {
        n = read(fd, out, size);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (code != BELAY_OK) {
        return code;
    }
    while (n > 0 && (out[n - 1] == '\n' || out[n - 1] == '\r')) {
        n--;
    }
    if (n <= 0 || (size_t)n >= size) {
        return error_set(err, BELAY_CONFIG, "%.200s must hold one line of 1 to %zu bytes", path, size - 1);
    }
    out[n] = '\0';
    if (strlen(out) != (size_t)n || !text_is_clean(out, size - 1)) {
        return error_set(err, BELAY_CONFIG, "%.200s must hold one line of plain text", path);
    }
    return BELAY_OK;
}

/* Visible ASCII. */
static bool is_token(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '!' || text[i] > '~') {
            return false;
        }
    }
    return n > 0;
}

const char *secret_token_source(const char *path)
{
    return env_text(SECRET_TOKEN_VARIABLE) != NULL ? SECRET_TOKEN_VARIABLE : path;
}

static enum belay_code read_token_text(const char *path, char *out, size_t size, struct belay_error *err)
{
    const char *value = env_text(SECRET_TOKEN_VARIABLE);

    if (value == NULL) {
        return secret_read(path, out, size, err);
    }
    if (strlen(value) >= size) {
        return error_set(err, BELAY_CONFIG, SECRET_TOKEN_VARIABLE " must hold one token of 1 to %zu bytes",
                         size - 1);
    }
    strcpy(out, value);
    return BELAY_OK;
}

enum belay_code secret_read_bearer(const char *path, char **out_header, struct belay_error *err)
{
    char text[TOKEN_MAX + 1] = "";
    struct buf value = BUF_INIT(TOKEN_MAX + 16);
    enum belay_code code = read_token_text(path, text, sizeof text, err);
    const char *token = text + strspn(text, " ");
    size_t n = strcspn(token, " ");
    char *header = NULL;

    if (code == BELAY_OK && (!is_token(token, n) || token[n + strspn(token + n, " ")] != '\0')) {
        code = error_set(err, BELAY_CONFIG, "%.200s must contain one token and nothing else",
                         secret_token_source(path));
    }
    if (code == BELAY_OK) {
        buf_addf(&value, "Bearer %.*s", (int)n, token);
        header = buf_take(&value);
        code = header == NULL ? error_no_memory(err) : BELAY_OK;
    }
    explicit_bzero(text, sizeof text);
    buf_release(&value);
    if (code == BELAY_OK) {
        *out_header = header;
    }
    return code;
}
