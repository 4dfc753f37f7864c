/* Other programs' names for jobs. */
#pragma once

typedef struct bp_job_word {
    const char *word;    /* in lower case */
    const char *command; /* "pretrain", or "bagpipe-data corpus"; NULL if there is none */
    const char *note;    /* a remark on it, or NULL */
} bp_job_word;

extern const bp_job_word bp_job_words[]; /* ends with a row whose word is NULL */
