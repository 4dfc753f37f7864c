/* The command that started this process. Local: no MPI. */
#ifndef BP_BASE_PROCESS_COMMAND_LINE_H
#define BP_BASE_PROCESS_COMMAND_LINE_H

/** argv quoted for a shell where needed; bytes that are not UTF-8 text become \xNN. With more than
 * one rank it begins with mpirun. Free with bp_free(). */
char *bp_command_line(int ranks);

#endif
