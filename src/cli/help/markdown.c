/* The tables as docs/cli.md. */
#include <string.h>

#include "cli/help/help.h"

/* A cell of a table: a bar would end it. */
static void put_cell(FILE *file, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '|') {
            (void)fputc('\\', file);
        }
        (void)fputc(*text, file);
    }
}

static void put_options(FILE *file, const char *title, const struct option_def *defs)
{
    char term[HELP_TERM_SIZE];

    (void)fprintf(file, "\n| %s | |\n|---|---|\n", title);
    for (; defs->name != NULL; defs++) {
        (void)fputs("| `", file);
        put_cell(file, help_term(term, defs));
        (void)fputs("` | ", file);
        put_cell(file, defs->help);
        (void)fputs(" |\n", file);
    }
}

static void put_pairs(FILE *file, const char *title, const struct help_pair *pairs)
{
    (void)fprintf(file, "\n## %s\n\n| | |\n|---|---|\n", title);
    for (; pairs->term != NULL; pairs++) {
        (void)fprintf(file, "| `%s` | ", pairs->term);
        put_cell(file, pairs->says);
        (void)fputs(" |\n", file);
    }
}

static void put_command(FILE *file, const struct cli_command *command)
{
    (void)fprintf(file, "\n## belay %s\n\n    belay %s%s%s\n\n%s\n", command->name, command->name,
                  *command->synopsis == '\0' ? "" : " ", command->synopsis, command->about);
    for (size_t i = 0; command->groups[i] != NULL; i++) {
        put_options(file, command->groups[i]->title, command->groups[i]->defs);
    }
    (void)fputs("\n| Exit code | |\n|---|---|\n", file);
    for (size_t i = 0; command->exits[i].says != NULL; i++) {
        (void)fprintf(file, "| %d | ", command->exits[i].code);
        put_cell(file, command->exits[i].says);
        (void)fputs(" |\n", file);
    }
    (void)fputs("\n", file);
    for (size_t i = 0; command->examples[i].line != NULL; i++) {
        (void)fprintf(file, "    $ %s\n", command->examples[i].line);
    }
}

void help_markdown(FILE *file)
{
    (void)fprintf(file,
                  "# The belay command\n\n"
                  "<!-- Made by tools/gen_docs from the tables in src/cli; do not edit. -->\n\n%s\n",
                  help_about);
    put_options(file, "Options of every command", global_options);
    put_pairs(file, "Exit codes", help_exits);
    put_pairs(file, "Environment", help_environment);
    put_pairs(file, "Files", help_files);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        put_command(file, cli_commands[i]);
    }
}
