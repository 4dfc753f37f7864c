/* What people type for a job that has another name here. */
#ifndef BP_JOBS_WORDS_H
#define BP_JOBS_WORDS_H

typedef struct bp_job_word {
    const char *word;    /* in lower case */
    const char *command; /* "pretrain", or "bagpipe-data corpus"; NULL: there is none */
    const char *note;    /* what is to be known of it; NULL: nothing */
} bp_job_word;

extern const bp_job_word bp_job_words[]; /* ends with a row whose word is NULL */

#endif
