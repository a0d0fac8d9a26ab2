/* What a session can be refused. */
#pragma once

/* Limits for which something was refused. */
enum ledger_refusal {
    LEDGER_REFUSED_SESSION_BYTES,
    LEDGER_REFUSED_TENANT_BYTES,
    LEDGER_REFUSED_SESSION_HOST,
    LEDGER_REFUSED_TENANT_HOST,
    LEDGER_REFUSED_TENSORS,
    LEDGER_REFUSED_STREAMS,
    LEDGER_REFUSALS
};
