#include <string.h>

#include "cli/commands/commands.h"
#include "cli/help/completion.h"

static int exec_completion(struct cli_context *context, const struct options *options)
{
    const char *shell = options->args[0];

    if (strcmp(shell, "bash") == 0) {
        completion_bash(stdout);
    } else if (strcmp(shell, "zsh") == 0) {
        completion_zsh(stdout);
    } else if (strcmp(shell, "fish") == 0) {
        completion_fish(stdout);
    } else {
        return cli_fail(context, BELAY_INVALID, "no completion for '%s': bash, zsh and fish have one", shell);
    }
    return CLI_OK;
}

const struct cli_command cmd_completion = {
    .name = "completion",
    .synopsis = "bash|zsh|fish",
    .summary = "print the completions for a shell",
    .about =
        "Prints a script that makes the shell complete commands, options, names of profiles, and keys of "
        "locks that are held: those of the --store and --config on the line. Keys are inserted so that the "
        "shell takes them as one word, whatever they contain.",
    .min_args = 1,
    .max_args = 1,
    .exits = { { 0, "printed" }, { 64, "there is none for that shell" } },
    .examples = { { "source <(belay completion bash)", "for this bash" },
                  { "belay completion fish > ~/.config/fish/completions/belay.fish", "for every fish" } },
    .exec = exec_completion,
};
