/* Shared by the state commands. */
#ifndef CLI_STATE_STATE_CLI_H
#define CLI_STATE_STATE_CLI_H

#include "belay/state.h"
#include "cli/core/cli.h"
#include "cli/core/deploy_info.h"
#include "cli/core/lock_options.h"

extern const struct option_group state_group; /* --stack, --environment */

#define SNAPSHOT_OPTION                                                                                      \
    OPT_TEXT("snapshot", "WHICH",                                                                            \
             "use this snapshot: 'latest', or a number or a time from 'belay state history'")

/* An open state store, and the state named on the command line. */
struct state_cli {
    struct cli_context *context;
    struct belay_states *states; /* owned */
    struct belay_state_name name;
    int64_t shown_ms; /* when progress was last printed; 0: never */
    int64_t begun_ms;
};

enum belay_code state_cli_open(struct cli_context *context, const struct options *options,
                               struct state_cli *out, struct belay_error *err);
/* The same for a command that names no state. */
enum belay_code state_store_open(struct cli_context *context, struct state_cli *out, struct belay_error *err);
void state_cli_close(struct state_cli *cli);

/* The lock under which a state is written: acquired for the write, or that of an outer `belay deploy` or `run`. */
struct state_lock {
    struct lock_request request;
    struct belay_lock *lock; /* owned; NULL: an outer lock is used, or none */
    struct belay_info *info; /* owned */
    struct belay_state_lock fence;
    bool is_fenced; /* `fence` is valid; false: locking is switched off */
    bool is_nested; /* the lock belongs to an outer command */
};
/* The first `n_args` arguments are not keys. The caller releases *out even after an error. */
enum belay_code state_lock_take(struct cli_context *context, const struct options *options, size_t n_args,
                                const struct deploy_info *info, struct state_lock *out,
                                struct belay_error *err);
void state_lock_release(struct cli_context *context, struct state_lock *lock, bool completed);
/* A write of `deployment` under the lock, from which it borrows. */
struct belay_state_write state_lock_write(const struct state_lock *lock,
                                          const struct belay_deployment *deployment);

/* Describe a lock for the state that it fences; the strings live as long as the lock's info and the client. */
enum belay_code state_fence_fill(struct belay_state_lock *fence, struct belay_client *client,
                                 const struct belay_info *info, struct belay_error *err);

/* Print the saved version: one line, or an object with --json. */
int state_print_saved(const struct cli_context *context, const struct state_cli *cli,
                      const struct belay_state *state, const char *what);

/* Read a new state; "-" is standard input. The caller frees the text. */
enum belay_code state_read_file(const char *path, char **out_text, size_t *out_len, struct belay_error *err);

/* The directory for temporary files. */
const char *state_temp_folder(void);

/* Write the text of a state; `mode` is that of fopen(). False with errno on failure. */
bool state_write_file(const char *path, const char *mode, const struct belay_state *state);

/* Keep a state that was not saved in a local file, and print its path. False, after a warning, if that failed. */
bool state_save_rejected(const struct cli_context *context, const struct belay_state_name *name,
                         const char *text, size_t len);

#endif
