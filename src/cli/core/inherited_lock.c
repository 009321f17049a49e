#include "cli/core/inherited_lock.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool inherited_next(const char **at, struct inherited_line *out)
{
    size_t len = *at == NULL ? 0 : strcspn(*at, "\n");
    const char *space = len == 0 ? NULL : memchr(*at, ' ', len);

    if (space == NULL) {
        return false;
    }
    out->token = *at;
    out->token_len = (size_t)(space - *at);
    out->key = space + 1;
    out->key_len = len - out->token_len - 1;
    *at += len + ((*at)[len] == '\n');
    return true;
}

bool inherited_lock_find(const char *key, char out_token[INHERITED_TOKEN_SIZE])
{
    const char *inherited = env_text("BELAY_KEY");
    const char *token = env_text("BELAY_TOKEN");
    const char *tokens = env_text("BELAY_TOKENS");
    struct inherited_line line;

    while (inherited_next(&tokens, &line)) {
        if (strlen(key) == line.key_len && memcmp(key, line.key, line.key_len) == 0) {
            (void)snprintf(
                out_token, INHERITED_TOKEN_SIZE, "%.*s",
                (int)(line.token_len < INHERITED_TOKEN_SIZE ? line.token_len : INHERITED_TOKEN_SIZE),
                line.token);
            return true;
        }
    }
    (void)snprintf(out_token, INHERITED_TOKEN_SIZE, "%s", token == NULL ? "" : token);
    return inherited != NULL && strcmp(inherited, key) == 0;
}
