/* Which word of a list was meant? For faults of configurations and command lines. */
#include "base/config/config_priv.h"

#include <ctype.h>
#include <string.h>

/* Wagner and Fischer 1974, two rows at a time; case does not count. */
int config_edit_distance(const char *a, const char *b)
{
    int row[CONFIG_COMPARED_BYTES + 1];
    int n = (int)strnlen(a, CONFIG_COMPARED_BYTES), m = (int)strnlen(b, CONFIG_COMPARED_BYTES);

    for (int j = 0; j <= m; j++)
        row[j] = j;
    for (int i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int same = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
            int best = diagonal + !same;
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[m];
}

const char *bp_nearest_word(const char *word, const char *const *words)
{
    const char *nearest = "";
    int least = CONFIG_COMPARED_BYTES + 1;

    for (; *words; words++) {
        int distance = config_edit_distance(word, *words);

        if (distance < least) {
            least = distance;
            nearest = *words;
        }
    }
    return nearest;
}
