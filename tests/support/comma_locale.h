/* For tests with cmocka: the locale of an embedding program that has a decimal comma. */
#ifndef TESTS_SUPPORT_COMMA_LOCALE_H
#define TESTS_SUPPORT_COMMA_LOCALE_H

#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Sets one; where there is none, localedef makes it. Says so and returns false if that fails, too.
 * setlocale(LC_ALL, "C") ends it. */
static inline bool set_comma_locale(void) {
    static const char *const names[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "pt_BR.UTF-8"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (setlocale(LC_ALL, names[i])) return true;
    char folder[] = "/tmp/trainer-locale-XXXXXX", command[128];
    if (!mkdtemp(folder)) return false;
    snprintf(command, sizeof command, "localedef -i de_DE -f ISO-8859-1 %s/de_DE >/dev/null 2>&1",
             folder);
    setenv("LOCPATH", folder, 1);
    const bool made = system(command) == 0 && setlocale(LC_ALL, "de_DE");
    snprintf(command, sizeof command, "rm -r %s", folder);
    if (system(command) == 0 && made) return true;
    fputs("skip: no locale with a decimal comma, and localedef makes none\n", stderr);
    return false;
}

#endif
