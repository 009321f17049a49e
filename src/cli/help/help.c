#include "cli/help/help.h"

#include <string.h>

enum { HELP_COLUMNS = 79, TERM_COLUMNS = 24 };

const struct help_pair help_environment[] = {
    { "BELAY_STORE", "the store of locks, unless --store is given" },
    { "BELAY_STATE_STORE", "the store of deployment state, unless --state-store is given" },
    { "BELAY_CONFIG", "the configuration file, unless --config is given" },
    { "BELAY_DISABLED", "1 switches locking off: every lock is granted and protects nothing" },
    { "NO_COLOR", "if it is not empty, nothing is coloured" },
    { NULL, NULL },
};

const struct help_pair help_files[] = {
    { "$XDG_CONFIG_HOME/belay/config.yaml",
      "the user's configuration; without XDG_CONFIG_HOME below ~/.config" },
    { "/etc/belay/config.yaml", "the machine's, which is read if the user has none" },
    { "./belay.yaml", "profiles, over those of the other two; anything else in it is refused" },
    { "$XDG_STATE_HOME/belay/belay.db", "the locks; without XDG_STATE_HOME below ~/.local/state" },
    { NULL, NULL },
};

const struct help_pair help_exits[] = {
    { "0", "done" },
    { "64", "the command line is wrong, values included" },
    { "65", "a file does not contain what it should" },
    { "66", "there is no such thing" },
    { "69", "the store could not be reached, and nothing happened" },
    { "70", "a bug in belay" },
    { "74", "unknown: it may have happened; repeat with the same lock id. Or: standard output could not be "
            "written" },
    { "75", "held by someone else, or the wait timed out" },
    { "76", "the lease was lost while the command ran" },
    { "77", "not the holder, or not allowed; nothing was changed" },
    { "78", "the configuration is wrong" },
    { "130, 143", "ended by SIGINT or SIGTERM: 128 and the number of the signal" },
    { NULL, NULL },
};

const char help_about[] =
    "A lock has a key and at most one holder at a time. The holder has a lease, which ends by itself unless "
    "it is renewed, a lock id, which renews and ends it, and a token, which is greater than that of every "
    "earlier holder. Locks are kept in a store: by default a file below the home directory, which any number "
    "of processes share.\n\n"
    "Options stand anywhere after or, those of every command, also before the command: --opt value or "
    "--opt=value. -- ends them. One that is given twice must say the same both times. Durations are written "
    "as 500ms, 30s, 10m or 1h30m.\n\n"
    "What was asked for goes to standard output, everything else to standard error. With --json both are "
    "JSON; an error is one object {\"error\": {\"code\", \"message\", \"lock\"}}.";

/* The bytes of a word, and what it takes in columns: no width but of one is in our own texts. */
static size_t word_bytes(const char *text, size_t *out_columns)
{
    size_t n = 0;

    *out_columns = 0;
    for (; text[n] != '\0' && text[n] != ' ' && text[n] != '\n'; n++) {
        *out_columns += ((unsigned char)text[n] & 0xc0) != 0x80;
    }
    return n;
}

/* Print `text` in lines that begin `indent` columns in; the first stands at `at` already. */
static void wrap(FILE *file, const char *text, size_t indent, size_t at)
{
    bool first = true;

    while (*text != '\0') {
        size_t columns;
        size_t n = word_bytes(text, &columns);

        if (!first && at + 1 + columns > HELP_COLUMNS) {
            (void)fprintf(file, "\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
        (void)fprintf(file, "%s%.*s", first ? "" : " ", (int)n, text);
        at += columns + !first;
        first = false;
        text += n;
        if (text[0] == '\n' && text[1] == '\n') {
            (void)fprintf(file, "\n\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
        text += strspn(text, " \n");
    }
    (void)fputc('\n', file);
}

static void print_pair(FILE *file, const char *term, const char *says)
{
    size_t at = 2 + strlen(term);

    (void)fprintf(file, "  %s", term);
    if (at + 2 > TERM_COLUMNS) {
        (void)fputc('\n', file);
        at = 0;
    }
    (void)fprintf(file, "%*s", (int)(TERM_COLUMNS - at), "");
    wrap(file, says, TERM_COLUMNS, TERM_COLUMNS);
}

char *help_term(char out[HELP_TERM_SIZE], const struct option_def *def)
{
    const char *value = def->kind == OPTION_CHOICE ? def->choices : def->value;

    (void)snprintf(out, HELP_TERM_SIZE, "--%s%s%s", def->name, value == NULL ? "" : " ",
                   value == NULL ? "" : value);
    return out;
}

static void print_options(FILE *file, const char *title, const struct option_def *defs)
{
    char term[HELP_TERM_SIZE];

    (void)fprintf(file, "\n%s:\n", title);
    for (; defs->name != NULL; defs++) {
        print_pair(file, help_term(term, defs), defs->help);
    }
}

void help_overview(FILE *file)
{
    (void)fputs("belay: one deploy, build or migration at a time\n\n"
                "Usage: belay COMMAND [OPTIONS] ...\n\nCommands:\n",
                file);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        print_pair(file, cli_commands[i]->name, cli_commands[i]->summary);
    }
    print_options(file, "Options of every command", global_options);
    (void)fputs("\nExamples:\n", file);
    if (cli_find_command("run") != NULL) {
        (void)fputs("  belay run deploy-api-prod -- ./deploy.sh\n", file);
    }
    (void)fputs("  belay acquire nightly-backup --ttl 1h\n"
                "  belay list\n"
                "\n'belay help COMMAND' says more about one of them.\n",
                file);
}

void help_command(FILE *file, const struct cli_command *command)
{
    (void)fprintf(file, "Usage: belay %s%s%s\n\n", command->name, *command->synopsis == '\0' ? "" : " ",
                  command->synopsis);
    wrap(file, command->about, 0, 0);
    for (size_t i = 0; command->groups[i] != NULL; i++) {
        print_options(file, command->groups[i]->title, command->groups[i]->defs);
    }
    print_options(file, "Options of every command", global_options);
    (void)fputs("\nExit codes:\n", file);
    for (size_t i = 0; command->exits[i].says != NULL; i++) {
        char term[16];

        (void)snprintf(term, sizeof term, "%d", command->exits[i].code);
        (void)fprintf(file, "  %-4s", term);
        wrap(file, command->exits[i].says, 6, 6);
    }
    (void)fputs("\nExamples:\n", file);
    for (size_t i = 0; command->examples[i].line != NULL; i++) {
        (void)fprintf(file, "  %s\n      ", command->examples[i].line);
        wrap(file, command->examples[i].says, 6, 6);
    }
}
