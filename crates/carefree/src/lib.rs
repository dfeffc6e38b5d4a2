//! carefree
