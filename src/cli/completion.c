/*
 * Completion scripts. What is in the tables is written into the script; keys and
 * names of profiles are asked for when they are needed, from the belay that is
 * being typed.
 */
#include "cli/completion.h"

#include <string.h>

#include "cli/cli.h"

/* The first word of a command's name. */
static size_t first_word(const struct cli_command *command)
{
    return strcspn(command->name, " ");
}

static const char *second_word(const struct cli_command *command)
{
    const char *space = strchr(command->name, ' ');

    return space == NULL ? NULL : space + 1;
}

/* True if no command before the i-th begins with the same word. */
static bool is_first_of_group(size_t i)
{
    size_t n = first_word(cli_commands[i]);

    for (size_t k = 0; k < i; k++) {
        if (first_word(cli_commands[k]) == n &&
            strncmp(cli_commands[k]->name, cli_commands[i]->name, n) == 0) {
            return false;
        }
    }
    return true;
}

static void put_choices(FILE *file, const char *choices)
{
    for (; *choices != '\0'; choices++) {
        (void)fputc(*choices == '|' ? ' ' : *choices, file);
    }
}

/* `text` inside single quotes; `special` are letters that need a backslash besides. */
static void put_quoted(FILE *file, const char *text, const char *special)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            (void)fputs("'\\''", file);
        } else {
            (void)fprintf(file, "%s%c", strchr(special, *text) == NULL ? "" : "\\", *text);
        }
    }
}

/* ---- bash --------------------------------------------------------------- */

static void bash_words(FILE *file)
{
    (void)fputs("_belay_words() {\n    case \"$1\" in\n    '') echo '", file);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if (is_first_of_group(i)) {
            (void)fprintf(file, "%.*s ", (int)first_word(cli_commands[i]), cli_commands[i]->name);
        }
    }
    (void)fputs("' ;;\n", file);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if (second_word(cli_commands[i]) == NULL || !is_first_of_group(i)) {
            continue;
        }
        (void)fprintf(file, "    %.*s) echo '", (int)first_word(cli_commands[i]), cli_commands[i]->name);
        for (size_t k = i; cli_commands[k] != NULL; k++) {
            if (strncmp(cli_commands[k]->name, cli_commands[i]->name, first_word(cli_commands[i]) + 1) == 0) {
                (void)fprintf(file, "%s ", second_word(cli_commands[k]));
            }
        }
        (void)fputs("' ;;\n", file);
    }
    (void)fputs("    completion) echo 'bash zsh fish' ;;\n    help) _belay_words '' ;;\n    esac\n}\n\n",
                file);
}

static void bash_names(FILE *file, const struct option_def *defs)
{
    for (; defs->name != NULL; defs++) {
        (void)fprintf(file, "--%s ", defs->name);
    }
}

static void bash_options(FILE *file)
{
    (void)fputs("_belay_options() {\n    echo '", file);
    bash_names(file, global_options);
    (void)fputs("'\n    case \"$1\" in\n", file);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        (void)fprintf(file, "    '%s') echo '", cli_commands[i]->name);
        for (size_t g = 0; cli_commands[i]->groups[g] != NULL; g++) {
            bash_names(file, cli_commands[i]->groups[g]->defs);
        }
        (void)fputs("' ;;\n", file);
    }
    (void)fputs("    esac\n}\n\n", file);
}

/* One line of the case that says what follows an option; flags have none. */
static void bash_values(FILE *file, const struct option_def *defs)
{
    for (; defs->name != NULL; defs++) {
        if (defs->kind == OPTION_FLAG) {
            continue;
        }
        (void)fprintf(file, "    --%s) ", defs->name);
        if (defs->kind == OPTION_CHOICE) {
            (void)fputs("echo 'words ", file);
            put_choices(file, defs->choices);
            (void)fputs("' ;;\n", file);
        } else {
            (void)fprintf(file, "echo %s ;;\n",
                          defs->complete == COMPLETE_FILE      ? "files"
                          : defs->complete == COMPLETE_PROFILE ? "profiles"
                          : defs->complete == COMPLETE_KEY     ? "keys"
                                                               : "text");
        }
    }
}

static const struct option_group *group_seen[64];
static size_t n_group_seen;

/* Groups are shared between commands: each is written once. */
static bool is_new_group(const struct option_group *group)
{
    for (size_t i = 0; i < n_group_seen; i++) {
        if (group_seen[i] == group) {
            return false;
        }
    }
    if (n_group_seen < sizeof group_seen / sizeof group_seen[0]) {
        group_seen[n_group_seen++] = group;
    }
    return true;
}

static void bash_all_values(FILE *file)
{
    n_group_seen = 0;
    (void)fputs("_belay_value() {\n    case \"$1\" in\n", file);
    bash_values(file, global_options);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        for (size_t g = 0; cli_commands[i]->groups[g] != NULL; g++) {
            if (is_new_group(cli_commands[i]->groups[g])) {
                bash_values(file, cli_commands[i]->groups[g]->defs);
            }
        }
    }
    (void)fputs("    esac\n}\n\n", file);
}

static void bash_key_commands(FILE *file)
{
    (void)fputs("_belay_takes_key() {\n    case \"$1\" in\n    '-'", file);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if (cli_commands[i]->takes_key) {
            (void)fprintf(file, " | '%s'", cli_commands[i]->name);
        }
    }
    (void)fputs(") return 0 ;;\n    esac\n    return 1\n}\n\n", file);
}

/* Keys have colons in them, at which bash cuts words: so the words are cut here. */
static const char bash_body[] =
    "_belay_keys() { \"$_belay_program\" list --quiet 2>/dev/null; }\n"
    "_belay_profiles() {\n"
    "    \"$_belay_program\" config show 2>/dev/null | sed -n 's/^profiles\\.\\([^.]*\\)\\..*/\\1/p' | sort "
    "-u\n"
    "}\n\n"
    "_belay() {\n"
    "    local line=\"${COMP_LINE:0:COMP_POINT}\" cur='' prev='' command='' kind='' word skip='' "
    "candidates=''\n"
    "    local -a words\n"
    "    read -ra words <<<\"$line\"\n"
    "    _belay_program=\"${words[0]}\"\n"
    "    if [[ $line != *[[:space:]] ]]; then\n"
    "        cur=\"${words[${#words[@]}-1]}\"\n"
    "        unset \"words[${#words[@]}-1]\"\n"
    "    fi\n"
    "    for word in \"${words[@]:1}\"; do\n"
    "        if [[ -n $skip ]]; then skip='' prev=''; continue; fi\n"
    "        prev=''\n"
    "        if [[ $word == -- ]]; then\n"
    "            mapfile -t COMPREPLY < <(compgen -A command -A file -- \"$cur\")\n"
    "            return\n"
    "        elif [[ $word == --*=* ]]; then continue\n"
    "        elif [[ $word == -* ]]; then\n"
    "            if [[ -n $(_belay_value \"$word\") ]]; then skip=1 prev=\"$word\"; fi\n"
    "        elif [[ -z $command || ( -n $(_belay_words \"$command\") && $command != completion && $command "
    "!= help ) ]]; then\n"
    "            command=\"${command:+$command }$word\"\n"
    "        fi\n"
    "    done\n"
    "    if [[ -n $prev ]]; then kind=\"$(_belay_value \"$prev\")\"\n"
    "    elif [[ $cur == --*=* ]]; then kind=\"$(_belay_value \"${cur%%=*}\")\" cur=\"${cur#*=}\"\n"
    "    elif [[ $cur == -* ]]; then kind=\"words $(_belay_options \"$command\")\"\n"
    "    elif _belay_takes_key \"$command\"; then kind=keys\n"
    "    else kind=\"words $(_belay_words \"$command\")\"; fi\n"
    "    case \"$kind\" in\n"
    "    words*) candidates=\"${kind#words}\" ;;\n"
    "    keys) candidates=\"$(_belay_keys)\" ;;\n"
    "    profiles) candidates=\"$(_belay_profiles)\" ;;\n"
    "    files) mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); return ;;\n"
    "    esac\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"${candidates//[\\\\\\$\\`\\\"\\']/}\" -- \"$cur\")\n"
    "    if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then\n"
    "        COMPREPLY=(\"${COMPREPLY[@]#\"${cur%:*}:\"}\")\n"
    "    fi\n"
    "}\n"
    "complete -F _belay belay\n";

void completion_bash(FILE *file)
{
    (void)fputs("# bash completion for belay; made by 'belay completion bash'\n\n", file);
    bash_words(file);
    bash_options(file);
    bash_all_values(file);
    bash_key_commands(file);
    (void)fputs(bash_body, file);
}

/* ---- zsh ---------------------------------------------------------------- */

static void zsh_options(FILE *file, const struct option_def *defs)
{
    for (; defs->name != NULL; defs++) {
        (void)fprintf(file, "        '%s--%s%s[", defs->repeatable ? "*" : "", defs->name,
                      defs->kind == OPTION_FLAG ? "" : "=");
        put_quoted(file, defs->help, "[]\\");
        (void)fputs("]", file);
        if (defs->kind == OPTION_CHOICE) {
            (void)fputs(":value:(", file);
            put_choices(file, defs->choices);
            (void)fputs(")", file);
        } else if (defs->kind != OPTION_FLAG) {
            (void)fprintf(file, ":%s:%s", defs->value,
                          defs->complete == COMPLETE_FILE      ? "_files"
                          : defs->complete == COMPLETE_PROFILE ? "_belay_profiles"
                          : defs->complete == COMPLETE_KEY     ? "_belay_keys"
                                                               : "");
        }
        (void)fputs("'\n", file);
    }
}

static void zsh_describe(FILE *file, const char *group)
{
    size_t n = strlen(group);

    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        const struct cli_command *command = cli_commands[i];

        if (n == 0 && !is_first_of_group(i)) {
            continue;
        }
        if (n > 0 && (strncmp(command->name, group, n) != 0 || command->name[n] != ' ')) {
            continue;
        }
        (void)fputs("        '", file);
        if (n > 0) {
            (void)fputs(second_word(command), file);
        } else {
            (void)fprintf(file, "%.*s", (int)first_word(command), command->name);
        }
        (void)fputc(':', file);
        put_quoted(file, command->summary, ":");
        (void)fputs("'\n", file);
    }
}

static void zsh_specs(FILE *file)
{
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        const struct cli_command *command = cli_commands[i];

        (void)fprintf(file, "    '%s') options=(\n", command->name);
        for (size_t g = 0; command->groups[g] != NULL; g++) {
            zsh_options(file, command->groups[g]->defs);
        }
        if (command->takes_key) {
            (void)fputs("        '1:key:_belay_keys'\n", file);
        } else if (strcmp(command->name, "completion") == 0) {
            (void)fputs("        '1:shell:(bash zsh fish)'\n", file);
        }
        if (command->takes_command) {
            (void)fputs("        '*::command:_normal'\n", file);
        }
        (void)fputs("        ) ;;\n", file);
    }
}

static void zsh_groups(FILE *file)
{
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        char group[32];

        if (second_word(cli_commands[i]) == NULL || !is_first_of_group(i)) {
            continue;
        }
        (void)snprintf(group, sizeof group, "%.*s", (int)first_word(cli_commands[i]), cli_commands[i]->name);
        (void)fprintf(file, "    %s) commands=(\n", group);
        zsh_describe(file, group);
        (void)fputs("        ) ;;\n", file);
    }
}

void completion_zsh(FILE *file)
{
    (void)fputs("#compdef belay\n# zsh completion for belay; made by 'belay completion zsh'\n\n"
                "_belay_keys() {\n"
                "    local -a keys\n"
                "    keys=(${(f)\"$(belay list --quiet 2>/dev/null)\"})\n"
                "    compadd -a keys\n"
                "}\n\n"
                "_belay_profiles() {\n"
                "    local -a names\n"
                "    names=(${(fu)\"$(belay config show 2>/dev/null |"
                " sed -n 's/^profiles\\.\\([^.]*\\)\\..*/\\1/p')\"})\n"
                "    compadd -a names\n"
                "}\n\n"
                "_belay() {\n"
                "    local context state state_descr line name=\"$1\"\n"
                "    typeset -A opt_args\n"
                "    local -a globals commands options\n"
                "    globals=(\n",
                file);
    zsh_options(file, global_options);
    (void)fputs("    )\n"
                "    _arguments -C $globals '1: :->command' '*:: :->rest' && return\n"
                "    if [[ $state == command ]]; then\n"
                "        commands=(\n",
                file);
    zsh_describe(file, "");
    (void)fputs("        )\n"
                "        _describe command commands\n"
                "        return\n"
                "    fi\n"
                "    name=\"$words[1]\"\n"
                "    case \"$name\" in\n",
                file);
    zsh_groups(file);
    (void)fputs("    esac\n"
                "    if (( $#commands )); then\n"
                "        _arguments -C $globals '1: :->command' '*:: :->rest' && return\n"
                "        if [[ $state == command ]]; then\n"
                "            _describe command commands\n"
                "            return\n"
                "        fi\n"
                "        name=\"$name $words[1]\"\n"
                "    fi\n"
                "    case \"$name\" in\n",
                file);
    zsh_specs(file);
    (void)fputs("    esac\n"
                "    _arguments -S $globals $options\n"
                "}\n\n"
                "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n"
                "    _belay \"$@\"\n"
                "else\n"
                "    compdef _belay belay\n"
                "fi\n",
                file);
}

/* ---- fish --------------------------------------------------------------- */

/* The condition under which a command is the one that is being typed. */
static void fish_condition(FILE *file, const struct cli_command *command)
{
    (void)fprintf(file, "-n '__fish_seen_subcommand_from %.*s", (int)first_word(command), command->name);
    if (second_word(command) != NULL) {
        (void)fprintf(file, "; and __fish_seen_subcommand_from %s", second_word(command));
    }
    (void)fputs("' ", file);
}

static void fish_options(FILE *file, const struct cli_command *command, const struct option_def *defs)
{
    for (; defs->name != NULL; defs++) {
        (void)fputs("complete -c belay ", file);
        if (command != NULL) {
            fish_condition(file, command);
        }
        (void)fprintf(file, "-l %s ", defs->name);
        if (defs->kind == OPTION_CHOICE) {
            (void)fputs("-x -a '", file);
            put_choices(file, defs->choices);
            (void)fputs("' ", file);
        } else if (defs->kind != OPTION_FLAG) {
            (void)fputs(defs->complete == COMPLETE_FILE      ? "-r -F "
                        : defs->complete == COMPLETE_PROFILE ? "-x -a '(__belay_profiles)' "
                        : defs->complete == COMPLETE_KEY     ? "-x -a '(__belay_keys)' "
                                                             : "-x ",
                        file);
        }
        (void)fputs("-d '", file);
        for (const char *at = defs->help; *at != '\0'; at++) {
            (void)fprintf(file, "%s%c", *at == '\'' || *at == '\\' ? "\\" : "", *at);
        }
        (void)fputs("'\n", file);
    }
}

static void fish_command(FILE *file, size_t i)
{
    const struct cli_command *command = cli_commands[i];
    const char *second = second_word(command);

    if (is_first_of_group(i)) {
        (void)fprintf(file, "complete -c belay -n __fish_use_subcommand -a %.*s -d \"%s\"\n",
                      (int)first_word(command), command->name, command->summary);
    }
    if (second != NULL) {
        (void)fprintf(file, "complete -c belay -n '__fish_seen_subcommand_from %.*s' -a %s -d \"%s\"\n",
                      (int)first_word(command), command->name, second, command->summary);
    }
    if (command->takes_key) {
        (void)fputs("complete -c belay ", file);
        fish_condition(file, command);
        (void)fputs("-a '(__belay_keys)'\n", file);
    }
    for (size_t g = 0; command->groups[g] != NULL; g++) {
        fish_options(file, command, command->groups[g]->defs);
    }
}

void completion_fish(FILE *file)
{
    (void)fputs(
        "# fish completion for belay; made by 'belay completion fish'\n\n"
        "function __belay_keys\n"
        "    belay list --quiet 2>/dev/null\n"
        "end\n\n"
        "function __belay_profiles\n"
        "    belay config show 2>/dev/null | string replace -rf '^profiles\\.([^.]*)\\..*' '$1' | sort -u\n"
        "end\n\n"
        "complete -c belay -f\n",
        file);
    fish_options(file, NULL, global_options);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        fish_command(file, i);
    }
    (void)fputs("complete -c belay -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n", file);
}
