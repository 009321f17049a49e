/* File descriptors that stay out of the way of COMMAND's standard ones. */
#ifndef CLI_RUN_DESCRIPTOR_H
#define CLI_RUN_DESCRIPTOR_H

/*
 * Whoever starts belay with a standard stream closed means COMMAND to find it
 * closed: what we open must not sit there, or a message would go into it.
 * Returns `fd` or a copy of it that is above 2, closed on exec; passes -1 on.
 */
int fd_above_standard(int fd);

#endif
