/* All methods of a study. */
#pragma once

#include "uncertainty/methods/method.h"

/** One line per method: WORD.c defines bp_WORD_method, and its keys bp_WORD_method_options. */
#define BP_UNCERTAINTY_METHODS(METHOD)                                                             \
    METHOD(dropout)                                                                                \
    METHOD(dropconnect)                                                                            \
    METHOD(laplace)                                                                                \
    METHOD(mahalanobis)

#define BP_DECLARE_METHOD(word)                                                                    \
    extern const bp_uncertainty_method bp_##word##_method;                                         \
    extern const bp_option bp_##word##_method_options[];
BP_UNCERTAINTY_METHODS(BP_DECLARE_METHOD)
#undef BP_DECLARE_METHOD

/** Without a word: an unmodified model or ensemble. */
extern const bp_uncertainty_method bp_plain_method;

extern const bp_uncertainty_method *const bp_uncertainty_methods[]; /* with words; NULL-ended */

/** For lists of option tables: the methods' keys, each followed by a comma. */
#define BP_METHOD_OPTIONS_ROW(word)    bp_##word##_method_options,
#define BP_UNCERTAINTY_METHODS_OPTIONS BP_UNCERTAINTY_METHODS(BP_METHOD_OPTIONS_ROW)
/** For --help: "FOLDER:dropout, FOLDER:..." */
#define BP_METHOD_HELP(word)        ", FOLDER:" #word
#define BP_UNCERTAINTY_METHODS_HELP BP_UNCERTAINTY_METHODS(BP_METHOD_HELP)

/** The method of a word; NULL if there is none. */
const bp_uncertainty_method *bp_uncertainty_method_find(const char *word);
/** ":dropout, :dropconnect, :laplace or :mahalanobis". Owns: the caller's, bp_free(). */
char *bp_uncertainty_method_words(void);
