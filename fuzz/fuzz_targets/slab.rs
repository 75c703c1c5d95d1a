#![no_main]
cuesta_fuzz::target!(Slab);
