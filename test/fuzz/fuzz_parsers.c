/* Every parser of outside bytes below the HTTP server. */
#include "fuzz_parsers.h"

const struct fuzz_target fuzz_targets[] = {
    { "yaml", fuzz_yaml, NULL },
    { "ini", fuzz_ini, NULL },
    { "words", fuzz_words, NULL },
    { "state", fuzz_state, NULL },
    { "journal", fuzz_journal, NULL },
    { "packed", fuzz_packed, NULL },
    { "plain", fuzz_plain, fuzz_answers_tear_down },
    { "remote", fuzz_remote, fuzz_answers_tear_down },
    { "sse", fuzz_sse, fuzz_answers_tear_down },
    { "dynamodb", fuzz_dynamodb, fuzz_answers_tear_down },
    { "s3", fuzz_s3, fuzz_answers_tear_down },
    { "aws", fuzz_aws, fuzz_answers_tear_down },
    { 0 },
};
