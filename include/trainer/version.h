/* The version of the library that is installed with these headers, in its one place. */
#ifndef TRAINER_VERSION_H
#define TRAINER_VERSION_H

#define TRAINER_VERSION_MAJOR 0
#define TRAINER_VERSION_MINOR 3
#define TRAINER_VERSION_PATCH 0

#define TRAINER_TEXT_OF_(number) #number
#define TRAINER_TEXT_(number)    TRAINER_TEXT_OF_(number)
/* "MAJOR.MINOR.PATCH" */
#define TRAINER_VERSION_STRING                                                                     \
    TRAINER_TEXT_(TRAINER_VERSION_MAJOR)                                                           \
    "." TRAINER_TEXT_(TRAINER_VERSION_MINOR) "." TRAINER_TEXT_(TRAINER_VERSION_PATCH)

#endif
