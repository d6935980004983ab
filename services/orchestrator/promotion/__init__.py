"""The way of an adapter: trained, checked at the gate, tried on live traffic, promoted or rolled back."""
