/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an AdmissionReview, through both ways of translating: refused with a sentence, or a patch and a
 * template that are whole. The annotation written is one that is read again. */
#include <string.h>

#include "controller/mutate.h"
#include "controller/review.h"
#include "fuzz.h"

static void mutate(const struct sl_review *r, const struct sl_mutate_options *opt)
{
    struct sl_mutation m;
    struct sl_err err = SL_ERR_INIT;
    int rc = sl_mutate_pod(r->pod, r->uid, opt, &m, &err);
    if (rc) {
        FUZZ_CHECK(rc < 0 && err.msg[0] && !m.patch);
        char *text = sl_review_deny(r->uid, 422, err.msg);
        free(text); /* NULL where the sentence quotes what is no UTF-8 */
        return;
    }
    if (m.asks) {
        struct sl_request back;
        char *text = sl_request_text(&m.request);
        if (text && sl_request_parse(text, &back, &err) != 0) {
            fprintf(stderr, "%s: %s\n", err.msg, text);
            abort();
        }
        free(text);
    }
    if (m.patch) {
        bool dra = opt->mode == SL_MUTATE_DRA;
        /* Whole GPUs by DRA keep their resources: at most a note and another scheduler. */
        bool plain = dra && !m.template_object && json_array_size(m.patch) <= 2;
        FUZZ_CHECK(plain || (m.asks && json_array_size(m.patch) >= 2));
        FUZZ_CHECK(plain || dra == (m.template_object != NULL));
        char *text = sl_review_allow(r->uid, m.patch, m.warnings);
        FUZZ_CHECK(text);
        free(text);
    }
    sl_mutation_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t cards[] = {16384, 81920};
    struct sl_mutate_options opt = {
        .mode = SL_MUTATE_DRA, .scheduler = "s", .card_mib = cards, .card_count = 2};
    struct sl_review r;
    struct sl_err err = SL_ERR_INIT;
    if (sl_review_parse((const char *)data, size, &r, &err) != 0) {
        FUZZ_CHECK(err.msg[0] && !r.root);
        return 0;
    }
    if (r.create_pod) {
        mutate(&r, &opt);
        opt.note_plain = true;
        mutate(&r, &opt);
        opt.mode = SL_MUTATE_EXTENDER;
        opt.slot_resource = "nvidia.com/gpu";
        mutate(&r, &opt);
    }
    sl_review_free(&r);
    return 0;
}
