/* search.limit as numbers. Called by options.c and search.c. */
#include "search/limit.h"

#include <stdlib.h>
#include <string.h>

static bp_err fail(const char *text)
{
    return BP_FAIL(BP_ERR_CONFIG, "search.bad_limit",
                   "search.limit has '%.60s': at search.limit; write tokens_per_second>=N, "
                   "parameters<=N or bytes<=N, with commas between them",
                   text);
}

bp_err nas_limit_read(nas_limit *out, const char *text)
{
    const struct {
        const char *words;
        double *value;
    } known[] = {{"tokens_per_second>=", &out->tokens_per_second},
                 {"parameters<=", &out->parameters},
                 {"bytes<=", &out->bytes}};

    memset(out, 0, sizeof *out);
    while (text && *(text += strspn(text, " \t,")) != '\0') {
        const char *begin = text;
        char *end = NULL;
        size_t k = 0;

        while (k < 3 && strncmp(text, known[k].words, strlen(known[k].words)) != 0)
            k++;
        if (k == 3 || *known[k].value != 0)
            return fail(begin);
        *known[k].value = strtod(text + strlen(known[k].words), &end);
        text = end + strspn(end, " \t");
        if (!(*known[k].value > 0) || *known[k].value > 1e18 || (*text != ',' && *text != '\0'))
            return fail(begin);
    }
    return BP_OK;
}
