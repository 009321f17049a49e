#ifndef SUPPORT_DIRECTORY_H
#define SUPPORT_DIRECTORY_H

/* Remove all files in it; there must be no folders. */
void directory_empty(const char *name);

#endif
