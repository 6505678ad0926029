#include "runtime/run/results/slow_link_figures.h"

#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "base/text.h"
#include "collectives/world/host_names.h"
#include "runtime/report/figure_text.h"
#include "runtime/report/step_terms.h"

static const char *host_of(const struct dp_run_job *job, int node)
{
    return dp_host_names_of(job->world->hosts, dp_group_leader(job->world->train, node));
}

static void name_link(const struct dp_run_job *job, const struct dp_slow_link *link,
                      char text[DP_SLOW_LINK_TEXT])
{
    if (link->from >= 0 && link->to >= 0 && link->from != link->to) {
        (void)snprintf(text, DP_SLOW_LINK_TEXT, "messages from %s to %s", host_of(job, link->from),
                       host_of(job, link->to));
    } else {
        (void)snprintf(text, DP_SLOW_LINK_TEXT, "all messages %s %s",
                       link->to < 0     ? "from"
                       : link->from < 0 ? "to"
                                        : "from and to",
                       host_of(job, link->from < 0 ? link->to : link->from));
    }
}

/* Samples/s with sums that take this share of their time: what was waited for of them is less. */
static double rate_with(const struct dp_run_summary *s, double share)
{
    struct dp_step_terms t;

    if (!dp_step_terms_find(s, &t)) {
        return (double)NAN;
    }
    const double saved = fmin(t.sending, (1.0 - share) * (t.sending + t.hidden));
    return s->samples_per_second * t.step / (t.step - saved);
}

void dp_slow_link_summarize(const struct dp_training *run, struct dp_run_summary *s,
                            char text[DP_SLOW_LINK_TEXT])
{
    const struct dp_exchange_links *links = &run->figures.limits.links;
    const struct dp_slow_link *slow = &links->slow;
    char rate[DP_FIGURE_BYTES], now[DP_FIGURE_BYTES];

    if (!slow->found) {
        return;
    }
    name_link(&run->job, slow, text);
    s->slow_link = text;
    s->slow_link_mbs = slow->bytes / slow->slow_s / 1e6;
    s->other_links_mbs = slow->bytes / slow->others_s / 1e6;
    s->slow_link_share = links->mended_share;
    s->slow_link_rate = rate_with(s, links->mended_share);
    DP_WARN("%s: %.3g MB/s, where other hosts have %.3g MB/s; with a link like theirs this run "
            "would make %s samples/s instead of %s",
            text, s->slow_link_mbs, s->other_links_mbs,
            dp_figure_number(rate, DP_REPORT_RATE, s->slow_link_rate),
            dp_figure_number(now, DP_REPORT_RATE, s->samples_per_second));
}
