//! carefree-context
