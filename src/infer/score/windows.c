/* Windows of the conventions, each in closed form. Called by plan.c and unit.c. */
#include "infer/score/windows.h"

#include "base/err.h"
#include "base/numbers.h"

int64_t bp_score_line(const bp_score_rule *rule, int64_t text_tokens)
{
    return text_tokens + rule->prefix + rule->end;
}

int64_t bp_score_window_count(const bp_score_rule *rule, int64_t line)
{
    int64_t C = rule->context, S = rule->stride;

    switch (rule->convention) {
    case BP_SCORE_ROLLING:
        if (line < 2)
            return 0;
        return 1 + bp_divide_up(line - 1 - bp_min(C, line - 1), S);
    case BP_SCORE_STRIDE:
        if (line < 1)
            return 0;
        return 1 + bp_divide_up(line - bp_min(C, line), S);
    case BP_SCORE_HALF:
        return line / C;
    case BP_SCORE_PLL:
    case BP_SCORE_PLL_WORD:
        return line;
    case BP_SCORE_PAIRS:
        return line >= 2 && (line - 1 <= C || rule->cut);
    }
    BP_ASSERT(false && "a convention");
    return 0;
}

/* The first window scores all that it can; each later one the next S positions, with as much
 * context as fits. */
static bp_score_window rolling(const bp_score_rule *rule, int64_t line, int64_t w)
{
    int64_t C = rule->context, S = rule->stride, targets = line - 1;

    if (w == 0)
        return (bp_score_window){.inputs = bp_min(C, targets), .scored = bp_min(C, targets)};

    int64_t before = C + (w - 1) * S; /* scored by earlier windows */
    int64_t scored = bp_min(S, targets - before);
    return (bp_score_window){.first = before + scored - C, .inputs = C, .scored = scored};
}

/* Windows of C tokens begin every S tokens. The last token of a window is only a target, and the
 * first is not a target: with S = C the first token of every window stays unscored, as in the
 * recipe. */
static bp_score_window stride(const bp_score_rule *rule, int64_t line, int64_t w)
{
    int64_t first = w * rule->stride;
    int64_t end = bp_min(first + rule->context, line);
    int64_t before = w == 0 ? 0 : first - rule->stride + rule->context;
    int64_t inputs = end - first - 1;

    return (bp_score_window){
        .first = first, .inputs = inputs, .scored = bp_min(inputs, end - before)};
}

static bp_score_window half(const bp_score_rule *rule, int64_t w)
{
    int64_t C = rule->context;

    return (bp_score_window){.first = w * C, .inputs = C - 1, .scored = C - C / 2 - 1};
}

/* For each token, a copy of the text around it. */
static bp_score_window masked(const bp_score_rule *rule, int64_t line, int64_t w)
{
    int64_t most = rule->context - 2, first = w / most * most;

    return (bp_score_window){.first = first,
                             .inputs = bp_min(most, line - first) + 2,
                             .scored = 1,
                             .masked = 1 + w - first};
}

bp_score_window bp_score_window_at(const bp_score_rule *rule, int64_t line, int64_t w)
{
    BP_ASSERT(w >= 0 && w < bp_score_window_count(rule, line));
    switch (rule->convention) {
    case BP_SCORE_ROLLING:
        return rolling(rule, line, w);
    case BP_SCORE_STRIDE:
        return stride(rule, line, w);
    case BP_SCORE_HALF:
        return half(rule, w);
    case BP_SCORE_PLL:
    case BP_SCORE_PLL_WORD:
        return masked(rule, line, w);
    case BP_SCORE_PAIRS:
        return rolling(rule, line, w);
    }
    BP_ASSERT(false && "a convention");
    return (bp_score_window){0};
}
