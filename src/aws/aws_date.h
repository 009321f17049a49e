/* Times as AWS writes them. */
#ifndef AWS_AWS_DATE_H
#define AWS_AWS_DATE_H

#include <stdbool.h>
#include <stdint.h>

/* "2026-11-15T22:34:39Z", also with a fraction, and with +00:00 or +0000 for Z. */
bool date_parse_iso(const char *text, int64_t *out_unix_ms);

#endif
