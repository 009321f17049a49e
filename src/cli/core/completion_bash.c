/* The completion script for bash. */
#include <string.h>

#include "cli/core/completion.h"
#include "cli/core/help.h"

static void bash_words(FILE *file)
{
    (void)fputs("_belay_words() {\n    case \"$1\" in\n    '') echo '", file);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if (completion_begins_group(i)) {
            (void)fprintf(file, "%.*s ", (int)completion_first_word(cli_commands[i]), cli_commands[i]->name);
        }
    }
    (void)fputs("' ;;\n", file);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if (completion_second_word(cli_commands[i]) == NULL || !completion_begins_group(i)) {
            continue;
        }
        (void)fprintf(file, "    %.*s) echo '", (int)completion_first_word(cli_commands[i]),
                      cli_commands[i]->name);
        for (size_t k = i; cli_commands[k] != NULL; k++) {
            if (strncmp(cli_commands[k]->name, cli_commands[i]->name,
                        completion_first_word(cli_commands[i]) + 1) == 0) {
                (void)fprintf(file, "%s ", completion_second_word(cli_commands[k]));
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
    static const char *const kinds[] = { [COMPLETE_NOTHING] = "text",
                                         [COMPLETE_FILE] = "files",
                                         [COMPLETE_PROFILE] = "profiles",
                                         [COMPLETE_KEY] = "keys" };

    for (; defs->name != NULL; defs++) {
        if (defs->kind == OPTION_FLAG) {
            continue;
        }
        (void)fprintf(file, "    --%s) ", defs->name);
        if (defs->kind == OPTION_CHOICE) {
            (void)fputs("echo 'words ", file);
            completion_put_choices(file, defs->choices);
            (void)fputs("' ;;\n", file);
        } else {
            (void)fprintf(file, "echo %s ;;\n", kinds[defs->complete]);
        }
    }
}

static void bash_all_values(FILE *file)
{
    (void)fputs("_belay_value() {\n    case \"$1\" in\n", file);
    completion_each_group(file, bash_values);
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
    bash_predicate(file, "_belay_takes_file", completion_takes_file);
    bash_predicate(file, "_belay_takes_command", takes_command);
    (void)fputs(bash_split, file);
    (void)fputs(bash_offer, file);
    (void)fputs(bash_body, file);
}
