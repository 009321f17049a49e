#ifndef FUZZ_HTTP_H
#define FUZZ_HTTP_H

#include <stddef.h>
#include <stdint.h>

enum { FUZZ_MAX_INPUT = 8192 };

/* Try one input; aborts when a rule is broken. Always 0. */
int fuzz_http(const uint8_t *data, size_t len);
void fuzz_tear_down(void);

#endif
