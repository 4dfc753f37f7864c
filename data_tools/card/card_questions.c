/* What no file answers: the open questions of a card and of a data sheet. Called by card_model.c
 * and card_corpus.c. */
#include "card.h"

#include <string.h>

/* Those that an option answered are left out. */
static void add_questions(card *self, const char *const *questions, size_t count)
{
    for (size_t k = 0; k < count; k++)
        if (!(strstr(questions[k], "--license") && json_object_get(self->data, "license")) &&
            !(strstr(questions[k], "--language") && json_object_get(self->data, "language")))
            card_line(self, "open", "%s", questions[k]);
}

void card_model_questions(card *self, bool is_trained)
{
    static const char *const questions[] = {
        "**Developed by**, funded by, shared by: who made the model, and who pays for it?",
        "**License**: under which terms may the weights be used? (`--license`)",
        "**Language**: which languages does the training text have? (`--language`)",
        "**Intended use**: for what is it meant, and for what must it not be used?",
        "**Bias and harm**: which groups of people may be treated worse by its predictions?",
        "**Training data**: may the texts be used for this? Do their authors know?",
        "**Environment**: in which region did it run, with what electricity, after what searches?",
        "**Citation and contact**: how is it cited, and who answers questions?"};

    add_questions(self, questions, sizeof questions / sizeof questions[0]);
    if (!is_trained)
        card_line(
            self, "open",
            "**Training**: how was it trained, on which text, with which keys? The checkpoint "
            "was imported, or its run is not here.");
}

void card_corpus_questions(card *self)
{
    static const char *const questions[] = {
        "**Motivation**: for what was it made, by whom, and who paid for it?",
        "**Language**: which languages does it have? (`--language`)",
        "**License**: under which terms may it be used and passed on? (`--license`)",
        "**Composition**: is it a sample of something larger? Is something missing? Are there "
        "errors, offensive texts, data of people who can be identified?",
        "**Collection**: how were the texts collected, by whom, over what time? Were people asked, "
        "and can they withdraw? Was it reviewed?",
        "**Preprocessing**: what was done to the texts before bagpipe read them? Are the raw ones "
        "kept?",
        "**Uses**: for what was it used so far? For what must it not be used?",
        "**Distribution**: who gets it, when and how?",
        "**Maintenance**: who answers questions, mends errors and removes texts on request?"};

    add_questions(self, questions, sizeof questions / sizeof questions[0]);
}
