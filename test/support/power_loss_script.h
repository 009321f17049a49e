/*
 * The run that the power-loss test cuts: acquisitions, renewals and releases of
 * process-held and of durable locks, over several raises of the token ceiling,
 * checkpoints and a reopening. It records when each step was acknowledged.
 */
#ifndef SUPPORT_POWER_LOSS_SCRIPT_H
#define SUPPORT_POWER_LOSS_SCRIPT_H

#include "belay/store.h"
#include "support/power_loss_vfs.h"

enum { SCRIPT_STEPS = 60, SCRIPT_KEYS = 6, SCRIPT_TTL_MS = 600000, SCRIPT_AHEAD = 7 };

extern const char *const script_keys[SCRIPT_KEYS];

/* The fields of a record that must survive. */
struct script_state {
    bool held;
    bool durable;
    char id[16];
    uint64_t token;
    enum belay_outcome outcome;
};

struct script_step {
    size_t begun; /* length of the log before the step, and at its acknowledgement */
    size_t acked;
    bool durable;
    uint64_t token; /* 0: none was granted */
    struct script_state after[SCRIPT_KEYS];
};

struct script_run {
    struct power_loss_log *log; /* owned */
    struct script_step steps[SCRIPT_STEPS];
    size_t opened; /* length of the log when the store was ready */
};

/* Run it in an empty directory. Prints a failure on standard error. */
bool script_run(struct script_run *run, const char *directory);

/* How many steps must be found after a cut, how many may be, and the highest acknowledged token. */
struct script_bounds {
    size_t least;
    size_t most;
    uint64_t token;
};
struct script_bounds script_bounds_at(const struct script_run *run, size_t cut);

/* Whether the records, in the order of script_keys, are as the first `n` steps leave them. */
bool script_is_as_after(const struct script_run *run, const struct belay_record records[SCRIPT_KEYS],
                        size_t n);

/* The store in that directory, on the power-loss VFS and the script's clock. NULL: `why` has the reason. */
struct belay_store *script_open(const char *directory, const char *boot_id, char *why, size_t why_size);
void script_set_clock(int64_t boot_ms);

#endif
