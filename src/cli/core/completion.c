/*
 * Completion scripts. Commands and options are part of the script; keys and profile names are read at completion
 * time by running the belay on the command line.
 */
#include <assert.h>
#include <string.h>

#include "cli/core/help.h"

/* The length of the first word of a command's name. */
static size_t first_word(const struct cli_command *command)
{
    return strcspn(command->name, " ");
}

static const char *second_word(const struct cli_command *command)
{
    const char *space = strchr(command->name, ' ');

    return space == NULL ? NULL : space + 1;
}

/* True for the first command of its group. */
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

/* The last argument is a file. */
static bool takes_file(const struct cli_command *command)
{
    size_t n = strlen(command->synopsis);

    return command->max_args == 1 && !command->takes_key &&
           ((n >= 4 && strcmp(command->synopsis + n - 4, "FILE") == 0) ||
            (n >= 6 && strcmp(command->synopsis + n - 6, "[FILE]") == 0));
}

static void put_choices(FILE *file, const char *choices)
{
    for (; *choices != '\0'; choices++) {
        (void)fputc(*choices == '|' ? ' ' : *choices, file);
    }
}

/* Put `text` inside single quotes; the characters in `special` also get a backslash. */
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

/* One case per option that takes a value. */
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

/* Commands share groups: each group is written once. */
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

/* A shell function that is true for some commands. */
static void bash_predicate(FILE *file, const char *name, bool (*is_one)(const struct cli_command *))
{
    (void)fprintf(file, "%s() {\n    case \"$1\" in\n    '-'", name);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if (is_one(cli_commands[i])) {
            (void)fprintf(file, " | '%s'", cli_commands[i]->name);
        }
    }
    (void)fputs(") return 0 ;;\n    esac\n    return 1\n}\n\n", file);
}

static bool takes_key(const struct cli_command *command)
{
    return command->takes_key;
}

static bool takes_command(const struct cli_command *command)
{
    return command->takes_command;
}

/*
 * Keys come from the store and are hostile input: the script compares, escapes and inserts them, and never
 * evaluates them. Readline replaces only what follows the last of COMP_WORDBREAKS, or the open quote, so the
 * script splits the line itself to know how much of a key stays on the line.
 */
static const char bash_split[] =
    "# Split the line as the shell would, without evaluating any of it:\n"
    "#   _belay_line     the words before the cursor's, without their quotes\n"
    "#   _belay_secret   1 for each word with a $ or a `, whose value is unknown here\n"
    "#   _belay_cur      the cursor's word without quotes; _belay_kept: the part that stays on the line\n"
    "#   _belay_quote    the quote that is open at the cursor\n"
    "_belay_split() {\n"
    "    local line=\"$1\" i c word='' started='' secret='' broken=''\n"
    "    _belay_line=() _belay_secret=() _belay_cur='' _belay_kept='' _belay_quote=''\n"
    "    for ((i = 0; i < ${#line}; i++)); do\n"
    "        c=\"${line:i:1}\"\n"
    "        if [ -n \"$_belay_quote\" ]; then\n"
    "            if [ \"$c\" = \"$_belay_quote\" ]; then\n"
    "                _belay_quote=''\n"
    "                continue\n"
    "            elif [ \"$_belay_quote\" = '\"' ] && [ \"$c\" = \\\\ ]; then\n"
    "                case \"${line:i+1:1}\" in\n"
    "                [\\$\\`\\\"\\\\]) i=$((i + 1)) c=\"${line:i:1}\" ;;\n"
    "                esac\n"
    "            elif [ \"$_belay_quote\" = '\"' ]; then\n"
    "                case \"$c\" in [\\$\\`]) secret=1 ;; esac\n"
    "            fi\n"
    "            word+=\"$c\"\n"
    "            continue\n"
    "        fi\n"
    "        case \"$c\" in\n"
    "        [[:space:]])\n"
    "            if [ -n \"$started\" ]; then _belay_line+=(\"$word\") _belay_secret+=(\"$secret\"); fi\n"
    "            word='' started='' secret='' broken=''\n"
    "            continue\n"
    "            ;;\n"
    "        [\\'\\\"]) _belay_quote=\"$c\" _belay_kept=\"$word\" ;;\n"
    "        \\\\)\n"
    "            i=$((i + 1))\n"
    "            if ((i == ${#line})); then return 1; fi\n"
    "            word+=\"${line:i:1}\"\n"
    "            ;;\n"
    "        *)\n"
    "            case \"$c\" in [\\$\\`]) secret=1 ;; esac\n"
    "            word+=\"$c\"\n"
    "            case \"$COMP_WORDBREAKS\" in *\"$c\"*) broken=\"$word\" ;; esac\n"
    "            ;;\n"
    "        esac\n"
    "        started=1\n"
    "    done\n"
    "    _belay_cur=\"$word\"\n"
    "    if [ -z \"$_belay_quote\" ]; then _belay_kept=\"$broken\"; fi\n"
    "    [ -z \"$secret\" ]\n"
    "}\n"
    "\n";

static const char bash_offer[] =
    "# Set _belay_text to \"$1\" escaped for the line; false if that is impossible. Keys are untrusted.\n"
    "_belay_escape() {\n"
    "    local i c\n"
    "    _belay_text=\"$1\"\n"
    "    case \"$_belay_quote$1\" in\n"
    "    \\'*\\'* | \\\"*[\\\"\\$\\`\\\\!]*) return 1 ;;\n"
    "    \\'* | \\\"*) return 0 ;;\n"
    "    *[![:alnum:]_./:@%+,=-]*) _belay_text='' ;;\n"
    "    *) return 0 ;;\n"
    "    esac\n"
    "    for ((i = 0; i < ${#1}; i++)); do\n"
    "        c=\"${1:i:1}\"\n"
    "        case \"$c\" in\n"
    "        [[:alnum:]_./:@%+,=-]) _belay_text+=\"$c\" ;;\n"
    "        *) _belay_text+=\"\\\\$c\" ;;\n"
    "        esac\n"
    "    done\n"
    "}\n"
    "\n"
    "# Offer the lines of standard input that continue the word. A line that begins with '-' looks like\n"
    "# an option; it is offered only where options are allowed ($1).\n"
    "_belay_offer() {\n"
    "    local candidate common='' first=1 n=\"${#_belay_cur}\" kept=\"${#_belay_kept}\"\n"
    "    while IFS= read -r candidate; do\n"
    "        if [ \"${candidate:0:n}\" != \"$_belay_cur\" ] || [ -z \"$candidate\" ]; then continue; fi\n"
    "        if [ -z \"$1\" ] && [ \"${candidate:0:1}\" = - ]; then continue; fi\n"
    "        _belay_escape \"${candidate:kept}\" || continue\n"
    "        COMPREPLY+=(\"$_belay_text\")\n"
    "        if [ -n \"$first\" ]; then common=\"$candidate\" first=''; fi\n"
    "        while [ \"${candidate:0:${#common}}\" != \"$common\" ]; do common=\"${common%?}\"; done\n"
    "    done\n"
    "    if ((${#COMPREPLY[@]} < 2)); then return; fi\n"
    "    case \"$COMP_TYPE\" in 37 | 42) return ;; esac\n"
    "    # The shell inserts the common prefix, which could end within an escape.\n"
    "    if ((${#common} > n)) && _belay_escape \"${common:kept}\"; then\n"
    "        COMPREPLY=(\"$_belay_text\")\n"
    "        compopt -o nospace 2>/dev/null\n"
    "    elif [[ ${COMPREPLY[*]} == *\\\\* || $_belay_cur == *[![:alnum:]_./:@%+,=-]* ]]; then\n"
    "        COMPREPLY+=(' ')\n"
    "    fi\n"
    "}\n"
    "\n"
    "_belay_ask() { \"$_belay_program\" \"$@\" \"${_belay_given[@]}\" 2>/dev/null </dev/null; }\n"
    "\n"
    "_belay_profiles() {\n"
    "    _belay_ask config show | sed -n 's/^profiles\\.\\([^.]*\\)\\..*/\\1/p' | sort -u\n"
    "}\n"
    "\n"
    "_belay_keys() {\n"
    "    _belay_ask list --quiet ${_belay_cur:+\"--prefix=$_belay_cur\"}\n"
    "}\n"
    "\n";

static const char bash_body[] =
    "# Remember --store and --config: keys are read from the store that the command will use.\n"
    "_belay_remember() {\n"
    "    local value=\"$2\"\n"
    "    case \"$1\" in --store | --config) ;; *) return ;; esac\n"
    "    if [ \"${value:0:2}\" = '~/' ]; then value=\"$HOME/${value:2}\"; fi\n"
    "    _belay_given+=(\"$1=$value\")\n"
    "    if [ -n \"$3\" ]; then _belay_unknown=1; fi\n"
    "}\n"
    "\n"
    "# What follows '--': a command and its arguments, or a key that may begin with '-'.\n"
    "_belay_after_dashes() {\n"
    "    if ! _belay_takes_command \"$1\"; then\n"
    "        if [ -z \"$_belay_unknown\" ]; then _belay_offer 1 < <(_belay_keys); fi\n"
    "    elif (($2 > 0)) || [[ $_belay_cur == */* ]]; then\n"
    "        compopt -o bashdefault -o default 2>/dev/null\n"
    "    else\n"
    "        _belay_offer '' < <(compgen -A command -- \"$_belay_cur\" | sort -u)\n"
    "    fi\n"
    "}\n"
    "\n"
    "_belay() {\n"
    "    local IFS=$' \\t\\n' command='' option='' kind='' word i\n"
    "    local _belay_cur _belay_kept _belay_quote _belay_text _belay_unknown='' _belay_program=\"$1\"\n"
    "    local -a _belay_line _belay_secret _belay_given=()\n"
    "    COMPREPLY=()\n"
    "    _belay_split \"${COMP_LINE:0:COMP_POINT}\" || return\n"
    "    if [ \"${_belay_program:0:2}\" = '~/' ]; then _belay_program=\"$HOME/${_belay_program:2}\"; fi\n"
    "    for ((i = 1; i < ${#_belay_line[@]}; i++)); do\n"
    "        word=\"${_belay_line[i]}\"\n"
    "        if [ -n \"$option\" ]; then\n"
    "            _belay_remember \"$option\" \"$word\" \"${_belay_secret[i]}\"\n"
    "            option=''\n"
    "        elif [ \"$word\" = -- ]; then\n"
    "            _belay_after_dashes \"$command\" $((${#_belay_line[@]} - i - 1))\n"
    "            return\n"
    "        elif [[ $word == --*=* ]]; then _belay_remember \"${word%%=*}\" \"${word#*=}\" "
    "\"${_belay_secret[i]}\"\n"
    "        elif [[ $word == -* ]]; then\n"
    "            if [ -n \"$(_belay_value \"$word\")\" ]; then option=\"$word\"; fi\n"
    "        elif [ -z \"$command\" ] || [[ -n $(_belay_words \"$command\") && $command != completion && "
    "$command != help ]]; then\n"
    "            command=\"${command:+$command }$word\"\n"
    "        fi\n"
    "    done\n"
    "    if [ -n \"$option\" ]; then kind=\"$(_belay_value \"$option\")\"\n"
    "    elif [[ $_belay_cur == --*=* ]]; then\n"
    "        kind=\"$(_belay_value \"${_belay_cur%%=*}\")\"\n"
    "        word=\"${_belay_cur%%=*}=\"\n"
    "        _belay_cur=\"${_belay_cur#*=}\"\n"
    "        if [ \"${_belay_kept:0:${#word}}\" = \"$word\" ]; then _belay_kept=\"${_belay_kept:${#word}}\"\n"
    "        else return; fi\n"
    "    elif [[ $_belay_cur == -* ]]; then kind=\"options\"\n"
    "    elif _belay_takes_key \"$command\"; then kind=keys\n"
    "    elif _belay_takes_file \"$command\"; then kind=files\n"
    "    else kind=\"words $(_belay_words \"$command\")\"; fi\n"
    "    case \"$kind\" in\n"
    "    words*) _belay_offer '' < <(printf '%s\\n' ${kind#words}) ;;\n"
    "    options) _belay_offer 1 < <(printf '%s\\n' $(_belay_options \"$command\")) ;;\n"
    "    keys) if [ -z \"$_belay_unknown\" ]; then _belay_offer '' < <(_belay_keys); fi ;;\n"
    "    profiles) if [ -z \"$_belay_unknown\" ]; then _belay_offer '' < <(_belay_profiles); fi ;;\n"
    "    files) compopt -o bashdefault -o default 2>/dev/null ;;\n"
    "    esac\n"
    "}\n"
    "complete -F _belay belay\n";

void completion_bash(FILE *file)
{
    (void)fputs("# bash completion for belay; generated by 'belay completion bash'\n\n", file);
    bash_words(file);
    bash_options(file);
    bash_all_values(file);
    bash_predicate(file, "_belay_takes_key", takes_key);
    bash_predicate(file, "_belay_takes_file", takes_file);
    bash_predicate(file, "_belay_takes_command", takes_command);
    (void)fputs(bash_split, file);
    (void)fputs(bash_offer, file);
    (void)fputs(bash_body, file);
}

/* What the first word of a command does, or the commands that begin with it. */
static const char *summary_of_first_word(const struct cli_command *command)
{
    char group[32];
    const char *summary;

    (void)snprintf(group, sizeof group, "%.*s", (int)first_word(command), command->name);
    summary = cli_group_summary(group);
    assert((summary != NULL) == (second_word(command) != NULL));
    return summary == NULL ? command->summary : summary;
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
        put_quoted(file, n > 0 ? command->summary : summary_of_first_word(command), ":");
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
            (void)fprintf(file, "        '%s:key:_belay_keys'\n",
                          command->max_args == CLI_MANY_KEYS && !command->takes_command ? "*" : "1");
        } else if (strcmp(command->name, "completion") == 0) {
            (void)fputs("        '1:shell:(bash zsh fish)'\n", file);
        } else if (takes_file(command)) {
            (void)fputs("        '1:file:_files'\n", file);
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

static const char zsh_head[] =
    "#compdef belay\n# zsh completion for belay; generated by 'belay completion zsh'\n\n"
    "# --store and --config of the line: keys are read from the store that the command will use.\n"
    "_belay_read_line() {\n"
    "    local word option=''\n"
    "    for word in \"${(@)words[2,CURRENT - 1]}\"; do\n"
    "        [[ $word == -- ]] && return\n"
    "        if [[ -z $option && $word == --(store|config)=* ]]; then\n"
    "            option=\"${word%%=*}\" word=\"${word#*=}\"\n"
    "        elif [[ -z $option ]]; then\n"
    "            [[ $word == --(store|config) ]] && option=\"$word\"\n"
    "            continue\n"
    "        fi\n"
    "        [[ $word == *[\\$\\`]* ]] && _belay_unknown=1\n"
    "        [[ $word == '~/'* ]] && word=\"$HOME/${word[3,-1]}\"\n"
    "        _belay_given+=(\"$option=${(Q)word}\")\n"
    "        option=''\n"
    "    done\n"
    "}\n"
    "\n"
    "_belay_ask() {\n"
    "    local program=\"${(Q)_belay_program}\"\n"
    "    [[ $program == '~/'* ]] && program=\"$HOME/${program[3,-1]}\"\n"
    "    [[ -z $_belay_unknown ]] && \"$program\" \"$@\" \"${(@)_belay_given}\" 2>/dev/null </dev/null\n"
    "}\n"
    "\n"
    "# Keys come from the store: compadd quotes them. A key that begins with '-' looks like an option.\n"
    "_belay_keys() {\n"
    "    local -a keys\n"
    "    keys=(${(f)\"$(_belay_ask list --quiet)\"})\n"
    "    keys=(${keys:#-*})\n"
    "    compadd -a keys\n"
    "}\n"
    "\n"
    "_belay_profiles() {\n"
    "    local -a names\n"
    "    names=(${(fu)\"$(_belay_ask config show | sed -n 's/^profiles\\.\\([^.]*\\)\\..*/\\1/p')\"})\n"
    "    compadd -a names\n"
    "}\n"
    "\n"
    "_belay() {\n"
    "    local context state state_descr line name=\"$1\"\n"
    "    local _belay_program=\"$words[1]\" _belay_unknown=''\n"
    "    local -a _belay_given\n"
    "    typeset -A opt_args\n"
    "    local -a globals commands options\n"
    "    _belay_read_line\n"
    "    globals=(\n";

void completion_zsh(FILE *file)
{
    (void)fputs(zsh_head, file);
    zsh_options(file, global_options);
    (void)fputs("    )\n"
                "    _arguments -C $globals '(-)1: :->command' '(-)*:: :->rest' && return\n"
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
                "        _arguments -C $globals '(-)1: :->command' '(-)*:: :->rest' && return\n"
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

/* The fish condition for "this command is on the line". */
static void fish_condition(FILE *file, const struct cli_command *command)
{
    (void)fprintf(file, "-n '__belay_at %s' ", command->name);
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
        (void)fprintf(file, "complete -c belay -n '__belay_next; or __belay_next help' -a %.*s -d \"%s\"\n",
                      (int)first_word(command), command->name, summary_of_first_word(command));
    }
    if (second != NULL) {
        int n = (int)first_word(command);

        (void)fprintf(file,
                      "complete -c belay -n '__belay_next %.*s; or __belay_next help %.*s' -a %s -d \"%s\"\n",
                      n, command->name, n, command->name, second, command->summary);
    }
    if (command->takes_key) {
        (void)fputs("complete -c belay ", file);
        if (command->max_args == 1) {
            (void)fprintf(file, "-n '__belay_next %s' ", command->name);
        } else {
            fish_condition(file, command);
        }
        (void)fputs("-a '(__belay_keys)'\n", file);
    }
    if (takes_file(command)) {
        (void)fprintf(file, "complete -c belay -n '__belay_next %s' -F\n", command->name);
    }
    if (command->takes_command) {
        (void)fprintf(file, "complete -c belay -n '__belay_at_command %s' -a '(__belay_command)'\n",
                      command->name);
    }
    for (size_t g = 0; command->groups[g] != NULL; g++) {
        fish_options(file, command, command->groups[g]->defs);
    }
}

static const char fish_head[] =
    "# fish completion for belay; generated by 'belay completion fish'\n\n"
    "# Run the belay of this line with its --store and --config, so that the keys are the command's.\n"
    "function __belay_ask\n"
    "    set -l words (commandline -opc)\n"
    "    set -l program $words[1]\n"
    "    set -l given\n"
    "    set -l option ''\n"
    "    command -q -- $program; or set program belay\n"
    "    for word in $words[2..]\n"
    "        if test -z \"$option\"\n"
    "            if test \"$word\" = --\n"
    "                break\n"
    "            else if string match -qr '^--(store|config)=' -- $word\n"
    "                set option (string split -m 1 = -- $word)\n"
    "                set word $option[2]\n"
    "                set option $option[1]\n"
    "            else\n"
    "                string match -qr '^--(store|config)$' -- $word; and set option $word\n"
    "                continue\n"
    "            end\n"
    "        end\n"
    "        # Variables are not expanded here, so the store is unknown.\n"
    "        string match -q '*$*' -- $word; and return 1\n"
    "        set -a given $option=(string replace -r '^~/' $HOME/ -- $word)\n"
    "        set option ''\n"
    "    end\n"
    "    command $program $argv $given 2>/dev/null </dev/null\n"
    "end\n"
    "\n"
    "# fish escapes what it inserts. A key that begins with '-' looks like an option.\n"
    "function __belay_keys\n"
    "    __belay_ask list --quiet | string match -v -- '-*'\n"
    "end\n"
    "\n"
    "# The words before the cursor that are neither options nor their values: the command and its "
    "arguments.\n"
    "function __belay_words\n"
    "    set -l is_value 0\n"
    "    for word in (commandline -opc)[2..]\n"
    "        if test $is_value = 1\n"
    "            set is_value 0\n"
    "        else if test \"$word\" = --\n"
    "            break\n"
    "        else if contains -- $word $__belay_valued\n"
    "            set is_value 1\n"
    "        else if not string match -q -- '-*' $word\n"
    "            echo -- $word\n"
    "        end\n"
    "    end\n"
    "end\n"
    "\n"
    "function __belay_next -d 'The next word comes after these'\n"
    "    set -l words (__belay_words)\n"
    "    test \"$words\" = \"$argv\"\n"
    "end\n"
    "\n"
    "function __belay_begins\n"
    "    set -l words (__belay_words)\n"
    "    set -l n (count $argv)\n"
    "    test (count $words) -ge $n; and test \"$words[1..$n]\" = \"$argv\"\n"
    "end\n"
    "\n"
    "function __belay_at -d 'This command is on the line'\n"
    "    not contains -- -- (commandline -opc); and __belay_begins $argv\n"
    "end\n"
    "\n"
    "function __belay_at_command -d 'The cursor is in the command that follows the two dashes'\n"
    "    contains -- -- (commandline -opc); and __belay_begins $argv\n"
    "end\n"
    "\n"
    "function __belay_command\n"
    "    set -l words (commandline -opc)\n"
    "    set -l at (contains -i -- -- $words)\n"
    "    set -l command (string escape -- $words[(math $at + 1)..])\n"
    "    complete -C \"$(string join ' ' -- $command (commandline -ct))\"\n"
    "end\n"
    "\n"
    "function __belay_profiles\n"
    "    __belay_ask config show | string replace -rf '^profiles\\.([^.]*)\\..*' '$1' | sort -u\n"
    "end\n"
    "\n"
    "complete -c belay -f\n";

static void fish_valued(FILE *file, const struct option_def *defs)
{
    for (; defs->name != NULL; defs++) {
        if (defs->kind != OPTION_FLAG) {
            (void)fprintf(file, " --%s", defs->name);
        }
    }
}

void completion_fish(FILE *file)
{
    (void)fputs(fish_head, file);
    (void)fputs("set -g __belay_valued", file);
    fish_valued(file, global_options);
    n_group_seen = 0;
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        for (size_t g = 0; cli_commands[i]->groups[g] != NULL; g++) {
            if (is_new_group(cli_commands[i]->groups[g])) {
                fish_valued(file, cli_commands[i]->groups[g]->defs);
            }
        }
    }
    (void)fputs("\n", file);
    fish_options(file, NULL, global_options);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        fish_command(file, i);
    }
    (void)fputs("complete -c belay -n '__belay_next completion' -a 'bash zsh fish'\n", file);
}
