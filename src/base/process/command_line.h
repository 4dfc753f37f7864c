/* The command that started this process. Local: no MPI. */
#pragma once

/** argv quoted for a shell where needed; bytes that are not UTF-8 text become \xNN. With more than
 * one rank it begins with mpirun. Free with bp_free(). */
char *bp_command_line(int ranks);
