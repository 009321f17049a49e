/* The targets of fuzz_parsers, by the file that defines them. */
#ifndef FUZZ_PARSERS_H
#define FUZZ_PARSERS_H

#include "fuzz.h"

/* fuzz_text.c: configuration, URLs, keys, durations, times */
void fuzz_yaml(const uint8_t *data, size_t len);
void fuzz_ini(const uint8_t *data, size_t len);
void fuzz_words(const uint8_t *data, size_t len);

/* fuzz_files.c: file formats */
void fuzz_state(const uint8_t *data, size_t len);
void fuzz_journal(const uint8_t *data, size_t len);
void fuzz_packed(const uint8_t *data, size_t len);

/* fuzz_answers.c: what a server answers */
void fuzz_plain(const uint8_t *data, size_t len);
void fuzz_remote(const uint8_t *data, size_t len);
void fuzz_sse(const uint8_t *data, size_t len);
void fuzz_dynamodb(const uint8_t *data, size_t len);
void fuzz_s3(const uint8_t *data, size_t len);
void fuzz_aws(const uint8_t *data, size_t len);
void fuzz_answers_tear_down(void);

#endif
