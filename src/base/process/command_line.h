/* The command that started this process. Local: no MPI. */
#ifndef BP_BASE_PROCESS_COMMAND_LINE_H
#define BP_BASE_PROCESS_COMMAND_LINE_H

/** argv as a shell takes it: words are quoted where they need it, and what is not text of UTF-8
 * becomes \xNN. With more than one rank mpirun comes first. Free with bp_free(). */
char *bp_command_line(int ranks);

#endif
