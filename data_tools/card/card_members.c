/* Where the members of an ensemble ran. Called by card_model.c. */
#include "card.h"

#include "base/files/fs.h"

#define RECORD_LIMIT ((int64_t)16 << 20)

json_t *card_machine(const char *run, json_t *record, const bp_history *history)
{
    json_t *out = NULL;

    if (history->curve_count > 1) {
        const bp_path members = bp_path_in(run, "members");
        const bp_path member = bp_path_in(members.text, history->curves[0].name);
        const bp_path path = bp_path_in(member.text, "run.json");

        if (bp_path_exists(path.text) && bp_json_load_plain(&out, path.text, RECORD_LIMIT) != BP_OK)
            out = NULL;
    }
    return out ? out : json_incref(record);
}
