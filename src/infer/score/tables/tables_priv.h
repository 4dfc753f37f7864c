/* Parts of the score files that come from the corpora. Local: no MPI. */
#ifndef BP_INFER_SCORE_TABLES_TABLES_PRIV_H
#define BP_INFER_SCORE_TABLES_TABLES_PRIV_H

#include "infer/score/plan.h"
#include "io/h5/h5.h"

/** /doc_id of all documents. Errors: BP_ERR_IO, those of the corpora. */
bp_err bp_score_ids_write(bp_h5 *out, const bp_score_plan *plan);

/** What makes tokens.h5 readable without the corpora: /tokens, /doc_start, /doc_id,
 * /source/tokenizer (where a corpus keeps it), named as in a corpus file. Errors: as above. */
bp_err bp_score_text_write(bp_h5 *out, const bp_score_plan *plan);

#endif
