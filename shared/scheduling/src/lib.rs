//! One partition's scheduler: eligibility, queue, book, scoring, picking.
