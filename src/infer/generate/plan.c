/* Prompts cut into work units. Called by setup.c and memory.c. */
#include "infer/generate/plan.h"

bp_generate_plan bp_generate_plan_of(const bp_search_spec *rule, int64_t prompts, int64_t longest,
                                     int64_t sequences, int64_t tokens, int64_t context, int stages)
{
    int64_t K = bp_search_slots(rule), most = sequences / K;
    bp_generate_plan plan = {.prompts = prompts, .tokens = tokens, .context = context};

    plan.unit_prompts = most < 1 ? 1 : most < prompts ? most : prompts;
    plan.units = (prompts + plan.unit_prompts - 1) / plan.unit_prompts;
    plan.group_prompts = (plan.unit_prompts + stages - 1) / stages;
    plan.groups = (int)((plan.unit_prompts + plan.group_prompts - 1) / plan.group_prompts);
    plan.slots = plan.group_prompts * K;
    plan.capacity = longest + tokens - 1 < context ? longest + tokens - 1 : context;
    return plan;
}

int64_t bp_generate_tokens_left(const bp_generate_plan *plan, int64_t length)
{
    int64_t capacity = plan->context - (plan->reads_source ? 1 : length) + 1;

    return capacity < plan->tokens ? capacity : plan->tokens;
}
