#include "aws/text/argv_split.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

enum { MAX_WORDS = 1000 };

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/*
 * Reads a quoted part from behind its opening quote; returns what follows the closing one, or
 * NULL if there is none.
 */
static const char *take_quoted(const char *at, char quote, struct buf *word)
{
    for (; *at != '\0'; at++) {
        if (*at == quote) {
            return at + 1;
        }
        if (quote == '"' && *at == '\\' && (at[1] == '"' || at[1] == '\\')) {
            at++;
        }
        buf_add(word, at, 1);
    }
    return NULL;
}

static const char *take_argument(const char *at, struct buf *word)
{
    buf_add(word, "", 0);
    while (at != NULL && *at != '\0' && !is_space(*at)) {
        if (*at == '\'' || *at == '"') {
            at = take_quoted(at + 1, *at, word);
        } else if (*at == '\\') {
            if (at[1] == '\0') {
                return NULL;
            }
            buf_add(word, at + 1, 1);
            at += 2;
        } else {
            buf_add(word, at, 1);
            at++;
        }
    }
    return at;
}

bool argv_split(const char *line, char ***out_argv)
{
    char **words = calloc(MAX_WORDS + 1, sizeof *words);
    size_t n = 0;

    while (words != NULL) {
        struct buf word = BUF_INIT(1 << 20);

        while (is_space(*line)) {
            line++;
        }
        if (*line == '\0' && n > 0) {
            *out_argv = words;
            return true;
        }
        line = n < MAX_WORDS && *line != '\0' ? take_argument(line, &word) : NULL;
        words[n] = line == NULL ? NULL : buf_take(&word);
        buf_release(&word);
        if (words[n++] == NULL) {
            break;
        }
    }
    argv_free(words);
    return false;
}

void argv_free(char **words)
{
    for (size_t i = 0; words != NULL && words[i] != NULL; i++) {
        free(words[i]);
    }
    free(words);
}
