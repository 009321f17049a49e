/* The entries of all commands. */
#ifndef CLI_COMMANDS_COMMANDS_H
#define CLI_COMMANDS_COMMANDS_H

#include "cli/core/cli.h"

extern const struct cli_command cmd_run;
extern const struct cli_command cmd_acquire;
extern const struct cli_command cmd_renew;
extern const struct cli_command cmd_release;
extern const struct cli_command cmd_status;
extern const struct cli_command cmd_list;
extern const struct cli_command cmd_unlock;
extern const struct cli_command cmd_wait;
extern const struct cli_command cmd_watch;
extern const struct cli_command cmd_top;
extern const struct cli_command cmd_history;
extern const struct cli_command cmd_locks_list;
extern const struct cli_command cmd_locks_status;
extern const struct cli_command cmd_locks_release;
extern const struct cli_command cmd_deploy;
extern const struct cli_command cmd_state_load;
extern const struct cli_command cmd_state_save;
extern const struct cli_command cmd_state_history;
extern const struct cli_command cmd_state_backup;
extern const struct cli_command cmd_state_restore;
extern const struct cli_command cmd_state_adopt;
extern const struct cli_command cmd_state_rebind;
extern const struct cli_command cmd_state_verify;
extern const struct cli_command cmd_state_list;
extern const struct cli_command cmd_state_locks;
extern const struct cli_command cmd_app_register;
extern const struct cli_command cmd_app_show;
extern const struct cli_command cmd_app_list;
extern const struct cli_command cmd_app_remove;
extern const struct cli_command cmd_app_status;
extern const struct cli_command cmd_app_mark_stopped;
extern const struct cli_command cmd_app_mark_running;
extern const struct cli_command cmd_app_import;
extern const struct cli_command cmd_app_export;
extern const struct cli_command cmd_db_stop;
extern const struct cli_command cmd_db_start;
extern const struct cli_command cmd_db_list;
extern const struct cli_command cmd_serve;
extern const struct cli_command cmd_auth_new;
extern const struct cli_command cmd_table_create;
extern const struct cli_command cmd_table_describe;
extern const struct cli_command cmd_backup;
extern const struct cli_command cmd_restore;
extern const struct cli_command cmd_repair;
extern const struct cli_command cmd_doctor;
extern const struct cli_command cmd_config_show;
extern const struct cli_command cmd_completion;
extern const struct cli_command cmd_help;
extern const struct cli_command cmd_version;

/* ---- shared by commands ---------------------------------------------------- */

/* Print the locks as a table, as JSON or as keys, depending on the context. Returns the exit code. */
int list_locks(struct cli_context *context, struct belay_client *client, const struct belay_query *query,
               struct belay_error *err);

/* Release KEY with --id and --outcome: for `release` and `locks release`. Returns the exit code. */
int release_exec(struct cli_context *context, const struct options *options);

/* For `unlock`, `locks release` and `top`, which end the lock of another client. */

/* The user who does it, for the history: user@host. */
void unlock_actor(char *out, size_t size);

/*
 * The lock of `key`, if it is held and this client may see its lock id. The caller frees *out_info also after an
 * error.
 */
enum belay_code unlock_find_held(struct belay_client *client, const char *key, struct belay_info **out_info,
                                 struct belay_error *err);

#endif
