/* The table of commands: add a new command here and in commands.h. */
#include <string.h>

#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/core/cli.h"

/* clang-format off */
const struct cli_command *const cli_commands[] = {
    &cmd_run,
    &cmd_acquire,
    &cmd_renew,
    &cmd_release,
    &cmd_status,
    &cmd_list,
    &cmd_unlock,
    &cmd_wait,
    &cmd_watch,
    &cmd_top,
    &cmd_history,
    &cmd_locks_list,
    &cmd_locks_status,
    &cmd_locks_release,
    &cmd_deploy,
    &cmd_state_load,
    &cmd_state_save,
    &cmd_state_history,
    &cmd_state_backup,
    &cmd_state_restore,
    &cmd_state_adopt,
    &cmd_state_rebind,
    &cmd_state_verify,
    &cmd_state_list,
    &cmd_state_locks,
    &cmd_app_register,
    &cmd_app_show,
    &cmd_app_list,
    &cmd_app_remove,
    &cmd_app_status,
    &cmd_app_mark_stopped,
    &cmd_app_mark_running,
    &cmd_app_import,
    &cmd_app_export,
    &cmd_db_stop,
    &cmd_db_start,
    &cmd_db_list,
    &cmd_serve,
    &cmd_auth_new,
    &cmd_table_create,
    &cmd_table_describe,
    &cmd_backup,
    &cmd_restore,
    &cmd_repair,
    &cmd_doctor,
    &cmd_config_show,
    &cmd_completion,
    &cmd_help,
    &cmd_version,
    NULL,
};
/* clang-format on */

const struct cli_command *cli_find_command(const char *name)
{
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if (strcmp(cli_commands[i]->name, name) == 0) {
            return cli_commands[i];
        }
    }
    return NULL;
}

bool cli_is_group(const char *word)
{
    size_t n = strlen(word);

    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if (text_has_prefix(cli_commands[i]->name, word) && cli_commands[i]->name[n] == ' ') {
            return true;
        }
    }
    return false;
}
